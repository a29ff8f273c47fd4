import { silentLogger } from '../../../common/base/logger.ts';
import { startInference } from '../inference-process.ts';

/** An engine to be killed: starts an inference process, says its pid, and waits. */
const inference = await startInference({
  order: {
    model: { id: 'scripted', contextSize: 1000, sequences: 1, gpu: 'off', kvType: 'f16' },
    path: '/nowhere/plain.gguf',
    sha256: 'a'.repeat(64),
    adapter: null,
  },
  onRecord: () => Promise.resolve(),
  logger: silentLogger,
  entry: process.argv[2] ?? '',
});
process.send?.(inference.pid);
