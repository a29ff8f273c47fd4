import { describe, expect, it } from 'vitest';
import { ExclusiveGate } from './exclusive-gate.ts';

const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await Promise.resolve();
};

describe('ExclusiveGate', () => {
  it('holds steppers back while exclusive work waits or runs, and lets them go on after it', async () => {
    const gate = new ExclusiveGate();
    const log: string[] = [];
    let finish: () => void = () => undefined;
    const work = gate.exclusive(() =>
      new Promise<void>((resolve) => (finish = resolve)).then(() => void log.push('work')),
    );
    const stepper = gate.stepping(async () => {
      expect(gate.expected).toBe(1);
      await gate.pass();
      log.push('step');
    });
    await turns(5);
    expect(gate.closed).toBe(true);
    expect(gate.expected).toBe(0); // paused: no batch waits for it
    finish();
    await Promise.all([work, stepper]);
    expect(log).toEqual(['work', 'step']);
    expect(gate.closed).toBe(false);
    expect(gate.expected).toBe(0);
  });

  it('runs exclusive work one at a time and in order, also after a failure', async () => {
    const gate = new ExclusiveGate();
    const log: number[] = [];
    const failing = gate.exclusive(async () => {
      await turns(3);
      log.push(1);
      throw new Error('no');
    });
    const next = gate.exclusive(async () => void log.push(2));
    await expect(failing).rejects.toThrow('no');
    await next;
    expect(log).toEqual([1, 2]);
    await gate.stepping(() => gate.pass());
  });
});
