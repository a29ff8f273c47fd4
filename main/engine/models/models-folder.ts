import { mkdir } from 'node:fs/promises';
import { MassError } from '../../common/base/errors.ts';

/** Makes the models folder when it is missing. @throws MassError prerequisite */
export async function ensureModelsFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
    throw new MassError(
      'prerequisite',
      `The models folder ${folder} cannot be made; choose another or mend its permissions.`,
      {
        cause,
      },
    );
  });
}
