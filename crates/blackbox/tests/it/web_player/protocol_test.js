// The messages, against the vectors of the Rust tests (crates/proto/tests/vectors). Gets the module
// and the vectors as lists of bytes; throws at the first fault.
(protocol, vectors) => {
  const { parse } = protocol, read = name => parse(new Uint8Array(vectors[name]).buffer);
  function same(found, expected, text) {
    const [one, other] = [found, expected].map(value => JSON.stringify(value));
    if (one !== other) throw new Error(`${text}: ${one}, expected ${other}`);
  }
  const stamp = ({ kind, id, refersTo, sent, received }) => [kind, id, refersTo, sent, received];
  const latin = bytes => String.fromCharCode(...bytes);

  const reply = read("time_reply");
  same(stamp(reply), [protocol.TIME, 3, 3, 3472.592997, 3472.592988], "time reply");
  same(reply.latency, 1.023694, "its latency");
  same(read("time_reply_negative").latency.toFixed(6), "-2.000010", "a negative latency");
  const chunk = read("wire_chunk");
  same([chunk.timestamp, chunk.sent, chunk.payload.length], [3473.580122, 3473.604233, 3], "chunk");
  const pcm = read("codec_header_pcm"), opus = read("codec_header_opus");
  same([pcm.codec, pcm.header.length, latin(pcm.header.slice(0, 4))], ["pcm", 44, "RIFF"], "header of PCM");
  same([opus.codec, latin(opus.header.slice(0, 4))], ["opus", "SUPO"], "header of Opus");
  same(read("server_settings").settings, { buffer: 1, latency: 0, volume: 100, muted: false, reportInterval: null }, "settings");
  const error = read("error");
  same([error.code, error.error, error.detail, error.refersTo], [401, "Unauthorized", "Login required", 2], "error");

  // What is sent, byte by byte.
  const list = bytes => [...bytes];
  same(list(protocol.clientInfo(100.000005, { muted: true, volume: 74 })), vectors.client_info, "client info");
  // The stamp of the receipt and the payload of a request mean nothing.
  const request = list(protocol.timeRequest(3, 3471.569294));
  same([request.slice(0, 14), request.slice(22, 26), request.length], [vectors.time_request.slice(0, 14), vectors.time_request.slice(22, 26), 34], "time request");
  const given = new Uint8Array(vectors.hello), json = new TextDecoder().decode(given.slice(30));
  same(list(protocol.hello(2, 3471.569191, JSON.parse(json))).slice(0, 14), vectors.hello.slice(0, 14), "head of a hello");
  same(list(protocol.hello(2, 3471.569191, JSON.parse(json))).slice(22), vectors.hello.slice(22), "hello");
  // A name outside of ASCII: the lengths are those of bytes.
  const name = protocol.hello(1, 0, { HostName: "Küche" }), view = new DataView(name.buffer);
  same([view.getUint32(22, true), view.getUint32(26, true)], [name.length - 26, name.length - 30], "lengths");

  // Nothing that is cut short or of another length is taken.
  for (const [label, bytes] of Object.entries(vectors)) {
    if (["hello", "time_request", "client_info", "hello_snapweb"].includes(label)) continue;
    for (let length = 0; length < bytes.length; length += 1) {
      let fault = null;
      try { parse(new Uint8Array(bytes.slice(0, length)).buffer); } catch (caught) { fault = caught; }
      if (!(fault instanceof RangeError)) throw new Error(`${label} cut to ${length} bytes: ${fault}`);
    }
    const damaged = new Uint8Array(bytes);
    // An inner length that exceeds the message.
    for (const at of [26, 30, 34]) if (at + 4 <= damaged.length) damaged.set([255, 255, 255, 127], at);
    let fault = null;
    try { parse(damaged.buffer); } catch (caught) { fault = caught; }
    if (label !== "time_reply" && label !== "time_reply_negative" && !(fault instanceof RangeError)) throw new Error(`${label} damaged: ${fault}`);
  }
  const settings = text => {
    const body = new TextEncoder().encode(text), out = new Uint8Array(30 + body.length), view = new DataView(out.buffer);
    view.setUint16(0, protocol.SERVER_SETTINGS, true);
    view.setUint32(22, out.length - 26, true);
    view.setUint32(26, body.length, true);
    out.set(body, 30);
    return parse(out.buffer).settings;
  };
  same(settings('{"bufferMs":"x","volume":250,"reportMs":1}'), { buffer: 1, latency: 0, volume: 100, muted: false, reportInterval: 0.5 }, "values out of range");
  return Object.keys(vectors).length;
}
