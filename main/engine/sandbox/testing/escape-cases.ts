import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { CommandRequest, CommandResult, Sandbox, SandboxLimits } from '../sandbox.ts';

/** What a case has: a real sandbox, and a folder of the user that runs it, which holds a secret. */
export interface EscapeWorld {
  readonly sandbox: Sandbox;
  readonly folder: string;
}

export interface EscapeCase {
  readonly name: string;
  readonly run: (world: EscapeWorld) => Promise<void>;
}

export const SECRET = 'sesame-4711';
export const LIMITS: SandboxLimits = { memoryMiB: 200, processes: 40, fileMiB: 64, diskMiB: 100, cpuSeconds: 20 };
let sequence = 0;

type Extra = Partial<Omit<CommandRequest, 'command'>>;

async function run(world: EscapeWorld, command: string, extra: Extra = {}): Promise<CommandResult> {
  const workspace = extra.workspace ?? (await newWorkspace(world));
  return await world.sandbox.run({
    command,
    workspace,
    limits: LIMITS,
    wallSeconds: 30,
    outputBytes: 10_000,
    ...extra,
  });
}

async function newWorkspace(world: EscapeWorld): Promise<string> {
  const workspace = path.join(world.folder, `workspace-${process.pid}-${sequence++}`);
  await world.sandbox.createWorkspace(workspace);
  return workspace;
}

/** A number of seconds that no other command sleeps: finds processes from outside. */
const uniqueSeconds = (): string => `3${process.pid}.${String(sequence++).padStart(4, '0')}7`;

function processesWith(word: string): number {
  let found = 0;
  for (const name of fs.readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      if (fs.readFileSync(`/proc/${name}/cmdline`, 'latin1').split('\0').includes(word)) found++;
    } catch {
      // It ended while we looked.
    }
  }
  return found;
}

async function until(condition: () => boolean, what: string): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    if (condition()) return;
    await sleep(20);
  }
  assert.fail(`never happened: ${what}`);
}

const DAEMONS = (seconds: string): string =>
  `(setsid sleep ${seconds} &); nohup sleep ${seconds} >/dev/null 2>&1 & (sleep ${seconds} & disown) `;

const boundary: EscapeCase[] = [
  {
    name: 'commands run as an unprivileged user without capabilities, and own the workspace',
    run: async (world) => {
      const result = await run(
        world,
        'id -u; grep -E "^(CapEff|CapBnd|NoNewPrivs)" /proc/self/status; touch made && ls',
      );
      assert.equal(result.stdout, '1000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nmade\n');
      assert.equal(result.exitCode, 0);
    },
  },
  {
    name: 'nothing outside the workspace and the private folders can be written',
    run: async (world) => {
      const places = ['/usr/x', '/x', '/etc/x', '/dev/x', '/bin/x', `${world.folder}/x`];
      const result = await run(world, places.map((place) => `touch ${place} && echo WROTE`).join('; '));
      assert.equal(result.stdout, '');
      assert.equal(fs.existsSync(`${world.folder}/x`), false);
      assert.equal(fs.existsSync('/usr/x'), false);
    },
  },
  {
    name: 'files of the user, the machine and other workspaces cannot be read',
    run: async (world) => {
      const other = await newWorkspace(world);
      fs.writeFileSync(path.join(other, 'notes'), SECRET, { mode: 0o644 });
      const files = [`${world.folder}/secret`, `${other}/notes`, '/etc/shadow', '/root/.bashrc', '../secret'];
      const roots = ['', '/proc/1/root', '/proc/self/root', '/proc/self/cwd/..'];
      const reads = roots.flatMap((root) => files.map((file) => `cat ${root}${file}`)).join('; ');
      const result = await run(world, `${reads}; ls /home /root ${world.folder}; ls -A /workspace`);
      assert.equal(result.stdout, '');
    },
  },
  {
    name: 'the environment holds no secret of the engine',
    run: async (world) => {
      assert.equal(process.env.MASS_TEST_SECRET, SECRET);
      const result = await run(world, 'env; cat /proc/*/environ /proc/*/cmdline', { env: { GIVEN: 'yes' } });
      // The command line of bwrap shows the command itself, but never the engine's variables.
      assert.equal(result.stdout.includes(SECRET), false);
      assert.match(result.stdout, /^GIVEN=yes$/m);
      assert.match(result.stdout, /^HOME=\/tmp\/home$/m);
    },
  },
  {
    name: 'there is no network: loopback of the host, abstract sockets, names, the outside',
    run: async (world) => {
      let connections = 0;
      const tcp = net.createServer(() => connections++);
      const unix = net.createServer(() => connections++);
      const servers = [tcp, unix];
      const abstract = `mass-test-${process.pid}`;
      tcp.listen(0, '127.0.0.1');
      unix.listen(`\0${abstract}`);
      await Promise.all(servers.map((server) => once(server, 'listening')));
      try {
        const { port } = tcp.address() as net.AddressInfo;
        const dial = (where: string): string => `(exec 3<>/dev/tcp/${where}) && echo CONNECTED`;
        const command = `${dial(`127.0.0.1/${port}`)}; ${dial('1.1.1.1/53')}; getent hosts example.com; cat /proc/net/unix`;
        const result = await run(world, command);
        assert.equal(result.stdout.includes('CONNECTED'), false);
        assert.equal(result.stdout.includes(abstract), false);
        assert.equal(result.stdout.split('\n').length <= 2, true);
        assert.equal(connections, 0);
      } finally {
        for (const server of servers) server.close();
      }
    },
  },
  {
    name: '/usr cannot be remounted, and no namespace with new powers can be made',
    run: async (world) => {
      const attempts = [
        'mount -o remount,rw,bind /usr',
        'mount -t tmpfs none /tmp',
        'umount /usr',
        'unshare -r true',
        'unshare -m true',
        'chroot / true',
      ];
      const result = await run(world, attempts.map((attempt) => `${attempt} && echo HELD`).join('; '));
      assert.equal(result.stdout, '');
    },
  },
  {
    name: 'device nodes, hard links to system files and links to outside files are of no use',
    run: async (world) => {
      const result = await run(
        world,
        `mknod d c 1 1; mknod b b 254 0; ln /usr/bin/env e; ln -s ${world.folder}/secret s; cat s; ls`,
      );
      assert.equal(result.stdout, 's\n');
    },
  },
  {
    name: 'processes of the host can be neither seen nor signalled',
    run: async (world) => {
      const result = await run(world, `kill -9 ${process.pid}; kill -0 ${process.ppid}; ls -d /proc/[0-9]* | wc -l`);
      assert.match(result.stderr, /No such process[\s\S]*No such process/);
      assert.equal(Number(result.stdout) < 10, true, result.stdout);
    },
  },
  {
    name: 'no descriptor of the engine is inherited',
    run: async (world) => {
      const leaked = fs.openSync(path.join(world.folder, 'secret'), 'r');
      try {
        const result = await run(world, 'ls -l /proc/self/fd /proc/1/fd; echo open; echo /proc/self/fd/*');
        assert.equal(result.stdout.includes(world.folder), false);
        assert.match(
          result.stdout,
          /^\/proc\/self\/fd\/0 \/proc\/self\/fd\/1 \/proc\/self\/fd\/2( \/proc\/self\/fd\/3)?$/m,
        );
      } finally {
        fs.closeSync(leaked);
      }
    },
  },
];

const limits: EscapeCase[] = [
  {
    name: 'commands run below serving and cannot raise themselves',
    run: async (world) => {
      const { stdout } = await run(world, 'nice; renice -n 0 $$ >/dev/null 2>&1; nice');
      assert.deepEqual(stdout.trim().split('\n').map(Number), [os.getPriority() + 10, os.getPriority() + 10]);
    },
  },
  {
    name: 'a spawner of 500 processes is bounded and leaves nothing',
    run: async (world) => {
      const seconds = uniqueSeconds();
      let most = 0;
      const watch = setInterval(() => {
        most = Math.max(most, processesWith(seconds));
      }, 50);
      const spawner = `sh -c 'i=0; while [ $i -lt 500 ]; do sleep ${seconds} & i=$((i+1)); done'; code=$?; sleep 1; exit $code`;
      const result = await run(world, spawner);
      clearInterval(watch);
      assert.equal(result.limit, 'processes');
      assert.notEqual(result.exitCode, 0);
      assert.equal(most > 5 && most <= LIMITS.processes, true, `${most} at once`);
      assert.equal(processesWith(seconds), 0);
    },
  },
  {
    name: 'memory is summed over the tree',
    run: async (world) => {
      // `tail` holds what it reads as there is no line end: four processes, each far below the limit.
      const result = await run(
        world,
        'for i in 1 2 3 4; do (head -c 70M /dev/zero; sleep 20) | tail >/dev/null & done; wait',
      );
      assert.deepEqual([result.limit, result.exitCode, result.signal], ['memory', null, 'SIGKILL']);
    },
  },
  {
    name: 'files in memory count as memory and are bounded',
    run: async (world) => {
      const wide = { ...LIMITS, fileMiB: 1000 };
      const full = await run(world, 'head -c 150M /dev/zero > /tmp/x; head -c 1 /dev/zero > /dev/x', { limits: wide });
      assert.match(full.stderr, /No space left on device/);
      const held =
        'head -c 95M /dev/zero > /tmp/x; head -c 95M /dev/zero > /dev/shm/x; (head -c 40M /dev/zero; sleep 20) | tail';
      assert.equal((await run(world, held, { limits: wide })).limit, 'memory');
    },
  },
  {
    name: 'a file cannot grow beyond its limit',
    run: async (world) => {
      const workspace = await newWorkspace(world);
      const result = await run(world, 'head -c 90M /dev/zero > big', { workspace });
      assert.deepEqual([result.limit, result.exitCode], ['file', 153]);
      assert.equal(fs.statSync(path.join(workspace, 'big')).size, LIMITS.fileMiB * 1024 * 1024);
    },
  },
  {
    name: 'all files together cannot grow beyond the limit of the disk, deleted open ones included',
    run: async (world) => {
      const many = await run(world, 'for i in 1 2 3 4; do head -c 60M /dev/zero > f$i; done; sleep 20');
      assert.deepEqual([many.limit, many.signal], ['disk', 'SIGKILL']);
      const quick = await run(world, 'head -c 60M /dev/zero > a; head -c 60M /dev/zero > b; chmod 0 .');
      assert.equal(quick.limit, 'disk');
      const hidden = 'exec 3>a 4>b; rm a b; head -c 60M /dev/zero >&3; head -c 60M /dev/zero >&4; sleep 20';
      assert.equal((await run(world, hidden)).limit, 'disk');
    },
  },
  {
    name: 'CPU time is limited for one process and for a tree',
    run: async (world) => {
      const short = { ...LIMITS, cpuSeconds: 1 };
      const one = await run(world, 'while :; do :; done', { limits: short });
      assert.equal(one.limit, 'cpu');
      const three = 'for i in 1 2 3; do (while :; do :; done) & done; wait';
      assert.equal((await run(world, three, { limits: short })).limit, 'cpu');
    },
  },
  {
    name: 'wall time ends a command and its children',
    run: async (world) => {
      const seconds = uniqueSeconds();
      const result = await run(world, `sleep ${seconds} & sleep ${seconds}`, { wallSeconds: 0.5 });
      assert.deepEqual([result.limit, result.exitCode, result.cancelled], ['wall', null, false]);
      assert.equal(processesWith(seconds), 0);
    },
  },
  {
    name: 'concurrent commands do not share their limits',
    run: async (world) => {
      // 3 x 30 processes under one user id with a limit of 40 each.
      const command = 'for i in $(seq 30); do sleep 1 & done; wait; echo all';
      const results = await Promise.all([1, 2, 3].map(() => run(world, command)));
      assert.deepEqual(
        results.map((result) => [result.stdout, result.exitCode, result.limit]),
        [1, 2, 3].map(() => ['all\n', 0, null]),
      );
    },
  },
  {
    name: 'a flood of output is drained in bounded memory',
    run: async (world) => {
      const before = process.memoryUsage().rss;
      let most = before;
      const watch = setInterval(() => {
        most = Math.max(most, process.memoryUsage().rss);
      }, 20);
      const result = await run(world, 'echo first; head -c 1G /dev/zero | tr "\\0" x; echo last', {
        outputBytes: 1000,
      });
      clearInterval(watch);
      assert.equal(result.stdoutBytes, 2 ** 30 + 'first\nlast\n'.length);
      assert.equal(result.stdout.startsWith('first\nxxx') && result.stdout.endsWith('xxxlast\n'), true);
      assert.match(result.stdout, /\n\[\.\.\. 1073740835 bytes dropped \.\.\.\]\n/);
      assert.equal(most - before < 200 * 2 ** 20, true, `${most - before} bytes more`);
    },
  },
];

const endings: EscapeCase[] = [
  {
    name: 'daemons do not outlive their command, and do not delay it',
    run: async (world) => {
      const seconds = uniqueSeconds();
      const result = await run(world, `${DAEMONS(seconds)}; sleep 0.2; echo done`);
      assert.deepEqual([result.exitCode, result.stdout], [0, 'done\n']);
      assert.equal(processesWith(seconds), 0);
    },
  },
  {
    name: 'cancelling ends the whole tree before it settles, at any moment',
    run: async (world) => {
      for (const delay of [0, 3, 8, 15, 25, 50, 300]) {
        const seconds = uniqueSeconds();
        const signal = AbortSignal.timeout(delay);
        const result = await run(world, `${DAEMONS(seconds)}; sleep ${seconds}`, { signal });
        assert.deepEqual([result.cancelled, result.limit, result.exitCode], [true, null, null]);
        assert.equal(processesWith(seconds), 0, `after ${delay} ms`);
      }
    },
  },
  {
    name: 'nothing survives the death of the engine',
    run: async (world) => {
      const seconds = uniqueSeconds();
      const workspace = await newWorkspace(world);
      const script = fileURLToPath(new URL('./hold-command.ts', import.meta.url));
      const node = [
        '--disable-warning=ExperimentalWarning',
        script,
        workspace,
        `${DAEMONS(seconds)}; sleep ${seconds}`,
      ];
      const engine = spawn(process.execPath, node, { stdio: ['ignore', 'ignore', 'inherit'] });
      try {
        await until(() => processesWith(seconds) >= 4, 'the command of the other engine runs');
      } finally {
        engine.kill('SIGKILL');
      }
      await until(() => processesWith(seconds) === 0, 'its processes are gone');
    },
  },
  {
    name: 'how a command ends is a result: exit codes, signals, unusable text',
    run: async (world) => {
      assert.equal((await run(world, 'exit 7')).exitCode, 7);
      assert.equal((await run(world, 'kill -TERM $$')).exitCode, 143);
      assert.equal((await run(world, 'no-such-program')).exitCode, 127);
      assert.equal((await run(world, 'echo \0')).exitCode, 126);
      assert.equal((await run(world, `: ${'x'.repeat(200_000)}`)).exitCode, 126);
      assert.equal((await run(world, `echo '"; exit 9; "' $(echo two)`)).stdout, '"; exit 9; " two\n');
      assert.deepEqual((await run(world, 'echo a | tee /dev/stderr >/dev/stdout')).stderr, 'a\n');
    },
  },
  {
    name: 'a sandbox that cannot start is an error of this machine, not a result',
    run: async (world) => {
      const workspace = path.join(world.folder, 'never-made');
      await assert.rejects(run(world, 'true', { workspace }), { code: 'infrastructure' });
    },
  },
];

/** Each proves one promise of docs/sandbox.md against the real bubblewrap. */
export const ESCAPE_CASES: readonly EscapeCase[] = [...boundary, ...limits, ...endings];
