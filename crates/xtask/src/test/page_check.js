// Looks at a report as a reader would, in a frame as wide as a desk's screen and in one as wide as a phone's: what is
// drawn, what is said on pointing at it, whether it can be read in light and dark. Complaints are the result.
"use strict";

function colour(text) {
  const parts = text.match(/[\d.]+/g).map(Number);
  return { rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1 };
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => {
    const s = c / 255;
    return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [high, low] = [luminance(colour(a).rgb), luminance(colour(b).rgb)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

// What lies behind an element: the first ancestor that paints.
function behind(view, element) {
  for (let at = element; at; at = at.parentElement) {
    const back = view.getComputedStyle(at).backgroundColor;
    if (colour(back).alpha > 0) return back;
  }
  return "rgb(255, 255, 255)";
}

function checkColours(view, say) {
  const page = view.document, style = (element) => view.getComputedStyle(element);
  for (const selector of ["h1", "section p", "figcaption", ".machine", ".legend .key", "nav a", ".tick", "summary"]) {
    for (const element of page.querySelectorAll(selector)) {
      const ink = element.namespaceURI.endsWith("svg") ? style(element).fill : style(element).color;
      const reached = contrast(ink, behind(view, element));
      // Lines of a legend are told apart by their colour, so their names are as legible as the lines.
      const wanted = selector === ".legend .key" ? 3 : 4.5;
      if (reached < wanted) say(`${selector} has a contrast of ${reached.toFixed(2)}`);
    }
  }
  for (const line of page.querySelectorAll("polyline")) {
    const reached = contrast(style(line).stroke, behind(view, line.ownerSVGElement.parentElement));
    if (reached < 3) say(`a line ${line.getAttribute("class")} has a contrast of ${reached.toFixed(2)}`);
  }
}

function checkFigures(view, say, expected) {
  const page = view.document, figures = [...page.querySelectorAll("figure")];
  if (figures.length === 0) say("there is no figure");
  let floors = 0, ratios = 0;
  for (const figure of figures) {
    const picture = figure.querySelector("svg"), frame = picture.getBoundingClientRect();
    if (frame.width < 200 || frame.height < 100) say(`a figure of ${frame.width} by ${frame.height}`);
    for (const mark of picture.querySelectorAll(".mark")) {
      const circle = mark.querySelector("circle:not(.reach)").getBoundingClientRect();
      const inside = circle.left >= frame.left && circle.right <= frame.right && circle.top >= frame.top
        && circle.bottom <= frame.bottom;
      if (!inside || circle.width < 2) say("a point lies outside its figure, or cannot be seen");
    }
    for (const tick of picture.querySelectorAll(".tick")) {
      if (tick.getBoundingClientRect().height < 8) say("a label is too small to be read");
    }
    const floor = picture.querySelector("polyline.floor");
    if (floor) {
      floors += 1;
      if (view.getComputedStyle(floor).strokeDasharray === "none") say("the floor is drawn like a library");
    }
  }
  const tip = page.getElementById("tip");
  for (const mark of page.querySelectorAll(".mark")) {
    mark.dispatchEvent(new view.PointerEvent("pointerenter"));
    if (tip.hidden || tip.textContent !== mark.getAttribute("aria-label")) say("pointing at a point says nothing");
    if (/times (better|worse) than|times the floor/.test(tip.textContent)) ratios += 1;
    const box = tip.getBoundingClientRect();
    if (box.left < 0 || box.right > view.innerWidth + 1) say(`what is said lies outside: ${box.left} to ${box.right}`);
    mark.dispatchEvent(new view.PointerEvent("pointerleave"));
    if (!tip.hidden) say("what was said stays");
  }
  const mark = page.querySelector(".mark");
  mark.focus();
  if (tip.hidden) say("the keyboard does not reach what is said");
  mark.blur();
  if (floors < expected.floors) say(`${floors} figures show a floor, ${expected.floors} should`);
  if (ratios < expected.ratios) say(`${ratios} points tell a ratio, ${expected.ratios} should`);
}

function checkPage(view, width, say, expected) {
  const page = view.document, root = page.documentElement;
  if (view.innerWidth !== width) say(`the frame is ${view.innerWidth} wide, not ${width}`);
  if (root.scrollWidth > width) say(`the page is ${root.scrollWidth} wide where ${width} are`);
  for (const link of page.querySelectorAll("nav a")) {
    if (!page.getElementById(decodeURIComponent(link.hash.slice(1)))) say(`${link.hash} leads nowhere`);
  }
  if (view.performance.getEntriesByType("resource").length > 0) say("the page fetches something");
  checkFigures(view, say, expected);
  const dark = view.matchMedia("(prefers-color-scheme: dark)").matches;
  if (dark !== expected.dark) say(`the browser prefers ${dark ? "dark" : "light"}`);
  const back = () => view.getComputedStyle(page.body).backgroundColor;
  const isDark = () => luminance(colour(back()).rgb) < 0.2;
  if (isDark() !== dark) say(`the page does not follow the browser: ${back()}`);
  checkColours(view, say);
  page.getElementById("scheme").click();
  if (isDark() === dark) say("the button does not change the scheme");
  checkColours(view, say);
}

async function lookAt(text, expected) {
  const complaints = new Set();
  for (const width of [1280, 390]) {
    const frame = document.createElement("iframe");
    frame.style.cssText = `width:${width}px;height:900px;border:0`;
    frame.srcdoc = text;
    const loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
    document.body.append(frame);
    await loaded;
    checkPage(frame.contentWindow, width, (complaint) => complaints.add(`at ${width}: ${complaint}`), expected);
    frame.remove();
  }
  const verdict = document.createElement("pre");
  verdict.id = "verdict";
  verdict.textContent = JSON.stringify([...complaints]);
  document.body.append(verdict);
}
