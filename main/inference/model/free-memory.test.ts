import { describe, expect, it } from 'vitest';
import { measureRam, parseGroup, parseMeminfo } from './free-memory.ts';

describe('parseMeminfo', () => {
  it('reads what is available, not what is unused', () => {
    const text = 'MemTotal:       24731708 kB\nMemFree:         1000000 kB\nMemAvailable:   23733584 kB\n';
    expect(parseMeminfo(text)).toEqual({ totalBytes: 24731708 * 1024, freeBytes: 23733584 * 1024 });
    expect(parseMeminfo('')).toBeNull();
  });
});

describe('parseGroup', () => {
  it('counts inactive file cache as free', () => {
    const group = {
      limit: '8000000000\n',
      used: '5000000000\n',
      stat: 'anon 1\ninactive_file 2000000000\n',
      cacheKey: 'inactive_file',
    };
    expect(parseGroup(group)).toEqual({ totalBytes: 8e9, freeBytes: 5e9 });
  });

  it('sees no limit in "max", in nothing, and in the largest number of version 1', () => {
    const none = { used: '1', stat: '', cacheKey: 'inactive_file' };
    for (const limit of ['max\n', '', '9223372036854771712\n']) expect(parseGroup({ ...none, limit })).toBeNull();
  });
});

describe('measureRam', () => {
  it('finds some memory free, and no more than there is', async () => {
    const { freeBytes, totalBytes } = await measureRam();
    expect(freeBytes).toBeGreaterThan(0);
    expect(freeBytes).toBeLessThanOrEqual(totalBytes);
  });
});
