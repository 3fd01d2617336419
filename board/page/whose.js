// Of a distributed job: whose steps the pages of times show, a rank that trained or one of the workers of a rank.
import { get } from "/api.js";
import { board, go } from "/main.js";
import { h } from "/dom.js";

export const placeName = (place) => `rank ${place.rank}${place.role ? `, ${place.role}` : ""}`;
// How a place is asked for.
const asked = (place) => (place === undefined ? {} : place.worker === undefined ? { rank: place.rank } : { worker: place.worker });
let pressed = false; // the page is drawn anew: who chose by keys goes on there

// What was found of the chosen one's steps, and `of`, which asks for the same one's again. The first one's where a recording has no
// such rank.
export async function profileOf(run) {
  const first = (error) => { if (error.status === 400 && Object.keys(board.whose).length) return get("profile", { run }); throw error; };
  const profile = await get("profile", { run, ...board.whose }).catch(first);
  return { ...profile, of: { run, ...asked(profile.ranks?.ranks[profile.ranks.shown]) } };
}

// Nothing where there is no choice.
export function whoseBar(profile) {
  const places = profile.ranks?.ranks.filter((place) => place.trained) ?? [], shown = profile.ranks?.ranks[profile.ranks.shown];
  if (places.length < 2) return null;
  const choice = h("select", { onchange: (event) => { pressed = true; go(board.page, { whose: asked(places[event.target.value]) }); } },
    places.map((place, i) => h("option", { value: i, selected: place === shown }, placeName(place))));
  if (pressed) setTimeout(() => choice.focus());
  pressed = false;
  return h("div", { class: "bar" }, h("label", {}, "steps of", choice));
}
