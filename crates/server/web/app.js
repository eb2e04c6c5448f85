// The frame of the page: navigation, the view of the address, notes, the player.

import { Events } from "./eventlog.js";
import { html, render, useEffect, useRef } from "./html.js";
import { PlayerBar } from "./listen.js";
import { Live } from "./live.js";
import { Logs, hasLogs } from "./logs.js";
import { Recordings } from "./recordings.js";
import { Relays } from "./relays.js";
import { Rooms } from "./rooms.js";
import { Station } from "./station.js";
import { link, may, route, spoken, status, trouble, unacknowledged } from "./store.js";
import { SyncBar } from "./sync.js";
import { System } from "./system.js";

const TROUBLE_MS = 8_000;

function Trouble() {
  const text = trouble.value;
  useEffect(() => {
    if (!text) return undefined;
    const timer = setTimeout(() => { trouble.value = ""; }, TROUBLE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<div class="trouble" role="alert">${text && html`<p>${text}</p><button type="button" aria-label="Close the message" onClick=${() => { trouble.value = ""; }}>Close</button>`}</div>`;
}

const CONNECTION = { connecting: "connecting", lost: "connection lost", refused: "login required" };

/** The views in the order of the navigation: address, name and content; and the method that a role needs to see one. */
const VIEWS = [["live", "Live", Live], ["rooms", "Rooms", Rooms], ["recordings", "Recordings", Recordings, "Aulos.StartRecording"], ["logs", "Logs", Logs, "Aulos.GetLog"], ["relays", "Outputs", Relays], ["events", "Events", Events], ["system", "System", System]];

/** Where an address leads to no view, as after a typing error or in an old bookmark. */
function Unknown({ name }) {
  return html`<h1>Unknown view</h1><section class="card empty"><p>There is no view at <code>${name}</code>.</p><p><a href="#/">Live</a> shows all stations; the navigation has the other views.</p></section>`;
}

function View() {
  const { page, name } = route.value, known = useRef("");
  const others = { station: [page, name, Station], unknown: [page, "Unknown view", Unknown] };
  const [, title, Content] = others[page] ?? VIEWS.find(([address]) => address === page);
  useEffect(() => {
    document.title = title === "Live" ? "aulos" : `${title} \u2013 aulos`;
    // Not after the first load: a reader who navigates starts at the top of the new view.
    if (known.current && known.current !== location.hash) {
      scrollTo(0, 0);
      document.getElementById("main").focus({ preventScroll: true });
    }
    known.current = location.hash || "#/";
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [title]);
  return html`<${Content} key=${title} name=${name}/>`;
}

function App() {
  const { page } = route.value, open = unacknowledged.value;
  const { host, version } = status.value ?? {};
  return html`
    <header class="top">
      <a class="brand" href="#/" aria-label="aulos, live view"><svg viewBox="0 0 16 16" width="20" height="20" aria-hidden="true"><path d="M7 1 3 15M9 1l4 14" stroke="currentColor" stroke-width="2" stroke-linecap="round"/></svg>aulos</a>
      <nav aria-label="Views">${VIEWS.filter(([address,,, method]) => (!method || may(method)) && (address !== "logs" || hasLogs())).map(([address, name]) => html`<a key=${address} href=${address === "live" ? "#/" : "#/" + address} aria-current=${page === address ? "page" : undefined}>${name}${address === "events" && open > 0 ? html` <span class="badge">${open > 99 ? "99+" : open}<span class="visually-hidden"> not acknowledged</span></span>` : ""}</a>`)}</nav>
      <p id="link" class=${"link " + link.value}><span class="dot" aria-hidden="true"></span><span>${CONNECTION[link.value] ?? host}</span></p>
    </header>
    <main id="main" tabindex="-1"><${View}/></main>
    <footer>${version ? `aulos ${version} on ${host}` : "\u00a0"}</footer>
    <${Trouble}/>
    <p class="visually-hidden" role="status" aria-live="polite">${spoken.value}</p>
    <${PlayerBar}/><${SyncBar}/>`;
}

const place = document.getElementById("page");
place.textContent = "";
render(html`<${App}/>`, place);
