// Plays an engine that runs one command (arguments: workspace, command) and is killed by the test.
import { silentLogger } from '../../../common/base/logger.ts';
import { createSandbox } from '../detect.ts';

const [workspace = '', command = ''] = process.argv.slice(2);
const sandbox = await createSandbox('bubblewrap', silentLogger);
const limits = { memoryMiB: 200, processes: 40, fileMiB: 10, diskMiB: 50, cpuSeconds: 20 };
await sandbox.run({ command, workspace, limits, wallSeconds: 600, outputBytes: 1000 });
