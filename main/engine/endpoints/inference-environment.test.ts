import { expect, it } from 'vitest';
import { inferenceEnvironment, runsOnCpu } from './inference-environment.ts';

it('passes what the process needs and no secrets', () => {
  const from = {
    PATH: '/bin',
    LC_ALL: 'C',
    CUDA_VISIBLE_DEVICES: '0',
    HF_TOKEN: 'secret',
    AWS_SECRET_ACCESS_KEY: 'secret',
    NODE_OPTIONS: '--inspect',
    UV_THREADPOOL_SIZE: '8',
  };
  expect(inferenceEnvironment(from, false)).toEqual({ PATH: '/bin', LC_ALL: 'C', CUDA_VISIBLE_DEVICES: '0' });
  expect(inferenceEnvironment(from, true).UV_THREADPOOL_SIZE).toBe('1');
});

it('knows when a model runs on the CPU', () => {
  expect(runsOnCpu('off')).toBe(true);
  expect(runsOnCpu('cuda')).toBe(false);
});
