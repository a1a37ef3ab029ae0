// Renews the page after each change of the cluster, and draws the charts.
"use strict";

const main = document.getElementById("main");
const state = document.getElementById("state");
let charts = [];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw() {
  charts.forEach((chart) => chart.destroy());
  charts = [...document.querySelectorAll("[data-plot]")].map((figure) => {
    const data = JSON.parse(figure.dataset.plot);
    const ink = colour("--dim");
    const axis = { stroke: ink, grid: { stroke: colour("--rule") }, ticks: { stroke: colour("--rule") } };
    const strokes = [colour("--used"), colour("--borrowed")];
    const series = figure.dataset.names.split("|").map((label, at) => ({ label, stroke: strokes[at % 2], width: 2 }));
    const across = figure.dataset.across;
    const options = {
      width: figure.clientWidth, height: 240, axes: [axis, axis],
      scales: { x: { time: across === "time" } },
      series: [{ label: across }, ...series],
    };
    return new uPlot(options, data, figure);
  });
}

function inputs() {
  return [...main.querySelectorAll("input[id]")];
}

// What the reader has opened, scrolled, typed or focused stays so.
function replace(html) {
  const opened = [...main.querySelectorAll("details")].map((each) => each.open);
  const scrolled = [...main.querySelectorAll(".wide")].map((each) => each.scrollLeft);
  const typed = new Map(inputs().map((each) => [each.id, each.value]));
  const focused = document.activeElement;
  const wasIn = main.contains(focused) && focused !== main;
  const place = wasIn ? [...main.querySelectorAll("a, input, button, summary, [tabindex]")].indexOf(focused) : -1;
  const href = wasIn ? focused.getAttribute("href") : null;
  main.innerHTML = html;
  main.querySelectorAll("details").forEach((each, at) => { each.open = Boolean(opened[at]); });
  main.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
  inputs().forEach((each) => { if (typed.has(each.id)) each.value = typed.get(each.id); });
  if (wasIn) {
    const all = [...main.querySelectorAll("a, input, button, summary, [tabindex]")];
    const same = href && all.find((each) => each.getAttribute("href") === href);
    (same || all[place] || main).focus({ preventScroll: true });
  }
  draw();
}

// A change waits while the reader types, has selected something, or looks at another tab.
let asking = false;
let changed = false;
const isStill = "still" in document.body.dataset; // an answer is of its moment
async function renew() {
  const typing = document.activeElement && document.activeElement.tagName === "INPUT";
  const selecting = String(getSelection()).length > 0;
  if (!changed || isStill || asking || typing || selecting || document.hidden) return;
  asking = true;
  changed = false;
  try {
    const answer = await fetch(location.href, { headers: { "X-Board-Part": "main" } });
    if (answer.ok) replace(await answer.text());
  } catch {
    // The stream of events says that the board is gone.
  } finally {
    asking = false;
  }
}

// What is asked may take a minute, in which the page stays as it is.
let isAsked = false;
function say(text) {
  if (isAsked) return;
  if (state.textContent !== text) state.textContent = text;
}

function follow() {
  const events = new EventSource(`/events?seen=${document.body.dataset.version}`);
  const told = (event) => say(event.data === "live" ? "" : "The cluster does not answer; this page may be old.");
  events.addEventListener("change", (event) => { told(event); changed = true; renew(); });
  events.addEventListener("beat", told);
  events.onerror = () => say("The board has ended; run bireme ui again.");
  events.onopen = () => say("");
}

addEventListener("submit", (event) => {
  if (!("slow" in event.target.dataset)) return;
  say("The board is computing the answer; this may take a minute.");
  isAsked = true;
});
addEventListener("pageshow", () => { isAsked = false; say(""); });

draw();
follow();
setInterval(renew, 1000);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", () => charts.forEach((c) => c.setSize({ width: c.root.parentElement.clientWidth, height: 240 })));
