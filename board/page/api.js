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

// Calls `changed` when a file of a run has changed; tells whether it listens.
export function listen(changed, state) {
  const source = new EventSource("/api/v1/events");
  source.addEventListener("open", () => state(true));
  source.addEventListener("error", () => state(false));
  source.addEventListener("change", changed);
}
