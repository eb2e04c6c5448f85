// The button that is held to talk to a station, a group or a client.

import { html, useEffect, useRef, useState } from "./html.js";
import { may, say, talkAddress, trouble } from "./store.js";

const LABELS = { opening: "Opening the microphone", speaking: "Speak now", waiting: "Waiting for its turn" };
const KEYS = [" ", "Enter"];

/** The modules of the microphone, which are loaded once a button is shown. */
const load = () => Promise.all([import("./talk/microphone.js"), import("./talk/talk.js")]);

/**
 * Held by a pointer or a key; a click without either, as of assistive technology, begins and ends.
 * `isQuiet`: without a microphone there is no button, and no reason.
 */
export function TalkButton({ target, name, isQuiet }) {
  const [modules, setModules] = useState(null), [state, setState] = useState(""), talk = useRef(null), level = useRef(null);
  const permitted = may("Aulos.Announce");
  useEffect(() => { if (permitted) load().then(setModules, () => {}); }, [permitted]);
  const release = () => { talk.current?.release(); };
  useEffect(() => {
    const hide = () => { if (document.hidden) release(); };
    document.addEventListener("visibilitychange", hide);
    return () => { document.removeEventListener("visibilitychange", hide); release(); };
  }, []);
  if (!permitted || !modules) return null;
  const [{ obstacle }, { Talk }] = modules, why = obstacle();
  if (why) return isQuiet ? null : html`<div class="talk"><button type="button" disabled>Hold to talk</button><span class="dim">${why}</span></div>`;
  const press = () => {
    if (talk.current) return;
    trouble.value = "";
    talk.current = new Talk(talkAddress, target, {
      state: next => { setState(next); say(LABELS[next]); },
      level: peak => { if (level.current) level.current.value = Math.sqrt(peak); },
      end: reason => {
        talk.current = null;
        setState("");
        if (reason) trouble.value = `Talk to ${name}: ${reason}`;
        else say(`The talk to ${name} has ended`);
      },
    });
  };
  const down = event => {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    press();
  };
  const key = act => event => {
    if (!KEYS.includes(event.key)) return;
    event.preventDefault();
    if (!event.repeat) act();
  };
  const click = event => { if (event.detail === 0) (talk.current ? release : press)(); };
  return html`<div class="talk"><button type="button" aria-pressed=${state !== ""} onPointerDown=${down} onPointerUp=${release} onPointerCancel=${release}
      onKeyDown=${key(press)} onKeyUp=${key(release)} onBlur=${release} onClick=${click} onContextMenu=${event => event.preventDefault()}>${LABELS[state] ?? "Hold to talk"}<span class="visually-hidden"> to ${name}</span></button>
    ${state ? html`<meter ref=${level} min="0" max="1" aria-label="Level of the microphone"></meter>` : ""}</div>`;
}
