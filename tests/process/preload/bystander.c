/* A library without NCCL's functions, which a test gives an NCCL's name. */
int preload_bystander(void);
int preload_bystander(void) { return 1; }
