import { silentLogger } from '../../../common/base/logger.ts';
import { Sidecar } from '../sidecar.ts';

/** An engine to be killed: starts the sidecar named by its arguments, says its pid once it is greeted, and waits. */
const [program = '', ...args] = process.argv.slice(2);
const command = { program, args, cwd: process.cwd(), env: { PATH: process.env.PATH ?? '' } };
const sidecar = new Sidecar({ command, logger: silentLogger, lineBytes: 1 << 20 });
await sidecar.next(20_000, 'start');
process.send?.(sidecar.pid);
