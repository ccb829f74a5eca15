/** The languages of sources that a trace may contain. */
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
