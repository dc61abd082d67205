/* A program linked with libpython. */
int plugin_main(void);
int main(void) { return plugin_main(); }
