/** The languages whose sources a trace can lead into. */
export const LANGUAGES = [
  'c',
  'cpp',
  'cuda-cpp',
  'objective-c',
  'objective-cpp',
  'rust',
  'go',
  'zig',
  'd',
  'swift',
  'nim',
  'ada',
  'pascal',
  'fortran',
  'FortranFreeForm',
];
