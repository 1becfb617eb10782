// A conversation of the official TypeScript SDK with the agent. Usage: node client.mjs PLAN
//
// PLAN is JSON: {command, folder, slow, stored}. Each message of both directions is a line on stdout.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";

const { command, folder, slow, stored } = JSON.parse(process.argv[2]);
const [program, ...rest] = command;
const agent = spawn(program, rest, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });

const tap = (from) =>
  new TransformStream({
    transform(message, controller) {
      console.log(JSON.stringify({ from, message }));
      controller.enqueue(message);
    },
  });
const raw = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const outgoing = tap("client");
outgoing.readable.pipeTo(raw.writable).catch(() => {});
const stream = { writable: outgoing.writable, readable: raw.readable.pipeThrough(tap("agent")) };

let answer = "Allow once";
let questions = 0;
let heard = [];
let onUpdate = () => {};
const app = acp
  .client({ name: "test" })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    questions += 1;
    const option = params.options.find((each) => each.name.startsWith(answer));
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    heard.push(params);
    onUpdate(params);
  });

const said = (sessionId) =>
  heard
    .filter((each) => each.sessionId === sessionId && each.update.sessionUpdate.endsWith("_message_chunk"))
    .map((each) => each.update.content.text);

await app.connectWith(stream, async (ctx) => {
  const { session } = acp.methods.agent;
  const begin = async (cwd) => (await ctx.request(session.new, { cwd, mcpServers: [] })).sessionId;
  const prompt = (sessionId, text) => ctx.request(session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  const history = async (sessionId) => {
    heard = [];
    await ctx.request(session.load, { sessionId, cwd: folder, mcpServers: [] });
    return said(sessionId);
  };

  const hello = await ctx.request(acp.methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  assert.equal(hello.protocolVersion, 1);
  assert.ok(hello.agentCapabilities.sessionCapabilities.fork);

  // permissions: once, for the session, refused, for good
  const first = await begin(folder);
  assert.equal((await prompt(first, "write a.txt")).stopReason, "end_turn");
  assert.ok(existsSync(join(folder, "a.txt")) && questions === 1);
  answer = "Allow for this session";
  await prompt(first, "write b.txt");
  await prompt(first, "write b.txt");
  assert.equal(questions, 2);
  answer = "Deny";
  await prompt(first, "write c.txt");
  assert.ok(!existsSync(join(folder, "c.txt")) && questions === 3);
  answer = "Allow always";
  await prompt(first, "pay");
  await prompt(await begin(folder), "pay");
  assert.equal(questions, 4);

  // a command of the bundle is offered, and its text is the prompt
  const greeted = await begin(folder);
  assert.equal((await prompt(greeted, "/greet Ann")).stopReason, "end_turn");
  assert.equal(said(greeted).join(""), "You said: Say hello to Ann.");
  const told = heard.filter((each) => each.sessionId === greeted && each.update.availableCommands).at(-1);
  assert.equal(told.update.availableCommands.find((each) => each.name === "greet").input.hint, "WHOM");

  // a running prompt is cancelled
  const waiting = await begin(slow);
  const running = prompt(waiting, "one");
  await ctx.notify(session.cancel, { sessionId: waiting });
  assert.equal((await running).stopReason, "cancelled");

  // forks, also of sessions that other programs have made
  const source = await begin(folder);
  await prompt(source, "one");
  await prompt(source, "two");
  for (const sessionId of [source, ...stored]) {
    const before = await history(sessionId);
    const at = heard.filter((each) => each.update.sessionUpdate === "agent_message_chunk")[0].update.messageId;
    const fork = await ctx.request(session.fork, { sessionId, cwd: folder });
    assert.notEqual(fork.sessionId, sessionId);
    assert.ok(fork.modes && fork.configOptions);
    assert.equal((await prompt(fork.sessionId, "three")).stopReason, "end_turn");
    assert.deepEqual(await history(fork.sessionId), [...before, "three", "You said: three"]);
    assert.deepEqual(await history(sessionId), before);
    for (const _meta of [
      { amplifier: { fork: { messageId: at } } },
      { jetbrains: { air: { fork: { version: 1, messageId: at } } } },
    ]) {
      const early = await ctx.request(session.fork, { sessionId, cwd: folder, _meta });
      assert.deepEqual(await history(early.sessionId), before.slice(0, 2));
      await ctx.request(session.delete, { sessionId: early.sessionId });
    }
    const { sessions } = await ctx.request(session.list, { cwd: folder });
    assert.ok(sessions.some((each) => each.sessionId === fork.sessionId));
    await ctx.request(session.close, { sessionId });
    heard = [];
    await ctx.request(session.resume, { sessionId, cwd: folder });
    assert.deepEqual(said(sessionId), []);
    await ctx.request(session.close, { sessionId });
    await assert.rejects(prompt(sessionId, "four"), (error) => error.code === -32002);
    await ctx.request(session.delete, { sessionId: fork.sessionId });
    await assert.rejects(history(fork.sessionId), (error) => error.code === -32002);
  }
  await ctx.request(session.delete, { sessionId: source });
});
agent.stdin.end();
await new Promise((resolve) => agent.on("exit", resolve));
assert.equal(agent.exitCode, 0);
