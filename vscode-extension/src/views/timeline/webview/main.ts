/** The timeline's drawing. */
export {};
