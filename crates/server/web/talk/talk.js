// One talk: a microphone and the WebSocket on which its frames go to the server.

import { Microphone } from "./microphone.js";

/** Frames that wait for the connection: 0.8 s. */
const MOST_QUEUED = 40;

export class Talk {
  #socket; #microphone = null; #queue = []; #isAdmitted = false; #isOver = false; #target; #on;

  /**
   * Talks to `target`, a station, group or client, at the WebSocket `address`, until `release`.
   * `on.state` is called with "opening", "speaking" or "waiting", `on.level` with peaks, and `on.end`
   * with the reason, empty after `release`.
   */
  constructor(address, target, on) {
    this.#target = target;
    this.#on = on;
    on.state("opening");
    const error = reason => this.#end(reason);
    Microphone.open({ frame: frame => this.#send(frame), level: on.level, error }).then(microphone => {
      this.#microphone = microphone;
      if (this.#isOver) microphone.close();
      else this.#connect(address);
    }, failure => this.#end(failure.message));
  }

  /** Ends the talk: what has been said is played to its end. */
  async release() {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#on.end("");
    await this.#microphone?.close();
    this.#flush();
    this.#socket?.close(1_000);
  }

  #connect(address) {
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.onopen = () => {
      socket.send(JSON.stringify({ ...this.#target, ...this.#microphone.format }));
      this.#flush();
    };
    socket.onmessage = ({ data }) => {
      const { error, before } = JSON.parse(data);
      if (error) return this.#end(error);
      this.#isAdmitted = true;
      this.#on.state(before > 0 ? "waiting" : "speaking");
    };
    socket.onclose = () => this.#end(this.#isAdmitted ? "the connection to the server was lost" : "the server does not accept the talk");
  }

  #send(frame) {
    this.#queue.push(frame);
    if (this.#queue.length > MOST_QUEUED) this.#queue.shift();
    this.#flush();
  }

  #flush() {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    for (const frame of this.#queue.splice(0)) this.#socket.send(frame);
  }

  #end(reason) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#microphone?.close();
    this.#socket?.close();
    this.#on.end(reason);
  }
}
