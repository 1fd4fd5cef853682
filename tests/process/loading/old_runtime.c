/* A libstdc++.so.6 that is older than librewire.so needs: it has the oldest version alone. */
__attribute__((visibility("default"))) int old_runtime(void) { return 0; }
