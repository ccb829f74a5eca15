/** The latency view's page. */
export {};
