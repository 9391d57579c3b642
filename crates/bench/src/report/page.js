(function () {
  "use strict";
  var tip = document.getElementById("tip");
  function show(mark) {
    tip.textContent = mark.getAttribute("data-text");
    tip.hidden = false;
    var at = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
    var left = Math.min(Math.max(4, at.left + 16), innerWidth - own.width - 4);
    var above = at.top - own.height - 6;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = (above > 4 ? above : at.bottom + 6) + "px";
  }
  function hide() { tip.hidden = true; }
  document.querySelectorAll(".mark").forEach(function (mark) {
    // The browser's own tip would come on top of ours.
    var title = mark.querySelector("title");
    mark.setAttribute("aria-label", title.textContent);
    title.remove();
    mark.addEventListener("pointerenter", function () { show(mark); });
    mark.addEventListener("pointerleave", hide);
    mark.addEventListener("focus", function () { show(mark); });
    mark.addEventListener("blur", hide);
  });
  addEventListener("scroll", hide, { passive: true });
  document.getElementById("scheme").addEventListener("click", function () {
    var root = document.documentElement, now = root.getAttribute("data-scheme");
    if (!now) now = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.setAttribute("data-scheme", now === "dark" ? "light" : "dark");
  });
})();
