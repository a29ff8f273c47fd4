import { z } from 'zod';
import { FromTrainer, ToTrainer, trainerProtocol } from './trainer.ts';

/** The sidecar's protocol as JSON Schema: what may be sent to it, and what it may send. */
export function trainerProtocolSchema(): Record<string, unknown> {
  const schemaOf = (type: z.ZodType): unknown => {
    const { $schema: _, ...schema } = z.toJSONSchema(type);
    return schema;
  };
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: `Lines between the engine and the trainer, protocol ${trainerProtocol}`,
    $defs: { toTrainer: schemaOf(ToTrainer), fromTrainer: schemaOf(FromTrainer) },
    oneOf: [{ $ref: '#/$defs/toTrainer' }, { $ref: '#/$defs/fromTrainer' }],
  };
}
