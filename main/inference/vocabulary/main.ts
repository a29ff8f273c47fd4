import { runVocabularyProcess } from './run-vocabulary-process.ts';

runVocabularyProcess();
