// The meters of one station on a transparent ground, for OBS and screens. The address has the
// station and the options; docs/reference/page.md describes them.

import { html, render, useEffect } from "./html.js";
import { Figures, Meter, Metered } from "./meters.js";
import { link, route, stations, status } from "./store.js";

const PARTS = ["name", "bars", "scale", "numbers"];
const options = new URLSearchParams(location.search);
const wanted = (options.get("show") ?? "bars,scale,numbers").split(",").filter(part => PARTS.includes(part));
const figures = options.get("numbers")?.split(",") ?? null;

const root = document.documentElement;
root.dataset.theme = options.get("theme") === "light" ? "light" : "dark";
if (options.get("panel") === "1") root.dataset.panel = "1";
for (const part of PARTS) root.classList.toggle(`no-${part}`, !wanted.includes(part));

function Overlay() {
  const { name } = route.value, station = stations.value.find(one => one.name === name);
  useEffect(() => { document.title = `${name} \u2013 aulos`; }, [name]);
  if (!station) {
    const text = { connecting: "", lost: "", refused: "Login required", connected: `There is no station ${name}` }[status.value ? "connected" : link.value];
    return html`<h1 class="visually-hidden">${name}</h1><p>${text}</p>`;
  }
  return html`<h1 class=${wanted.includes("name") ? "" : "visually-hidden"}>${name}</h1>
    <${Metered} label=${"Meters of " + name}><div class="overlay">${wanted.includes("bars") ? html`<${Meter} station=${station}/>` : ""}${wanted.includes("numbers") ? html`<${Figures} station=${station} only=${figures}/>` : ""}</div></${Metered}>`;
}

const place = document.getElementById("meter");
place.textContent = "";
render(html`<${Overlay}/>`, place);
