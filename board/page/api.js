// Asking the server: docs/board.md lists what it answers.

export async function get(name, parameters = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters))
    if (value !== undefined && value !== null && value !== "") query.set(key, value);
  const response = await fetch(`/api/v1/${name}?${query}`, { credentials: "same-origin" });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error), { status: response.status });
  return answer;
}

export const imageAddress = (run, id, step) => `/api/v1/image?run=${run}&id=${id}&step=${step}`;

// Calls `changed` when a file of a run has changed; tells whether it listens. A page that nobody sees holds no connection: a browser
// has few of them for all its pages together. Where the server has no place for one more listener, the page asks every half minute.
export function listen(changed, state) {
  let source = null, timer = null;
  function open() {
    clearTimeout(timer);
    source = new EventSource("/api/v1/events");
    source.addEventListener("open", () => state(true));
    source.addEventListener("change", changed);
    source.addEventListener("error", () => {
      state(false);
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(() => { changed(); open(); }, 30000);
    });
  }
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    source?.close();
    if (document.hidden) return;
    changed();
    open();
  });
  open();
}
