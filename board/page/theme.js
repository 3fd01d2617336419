// Before anything is drawn: the theme that was chosen last, else what the system says.
"use strict";
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* no storage: the system's */ }
  if (chosen) document.documentElement.dataset.theme = chosen;
})();
