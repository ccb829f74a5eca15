/** Style sheets that a bundle contains as texts. */
declare module '*.css' {
  const text: string;
  export default text;
}
