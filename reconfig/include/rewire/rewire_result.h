/* The results of Rewire's C interfaces, and the marks of their functions. C99. */
#ifndef REWIRE_RESULT_H_
#define REWIRE_RESULT_H_

#define REWIRE_API __attribute__((visibility("default")))
#ifdef __cplusplus
#define REWIRE_NOEXCEPT noexcept
#else
#define REWIRE_NOEXCEPT
#endif

typedef enum {
  rewireSuccess = 0,
  rewireInvalidArgument = 1, /* the call is wrong and had no effect */
  rewireInvalidUsage = 2,    /* the call is not allowed at this moment */
  rewireUnavailable = 3,     /* the agent or a peer is gone, or the update function failed; a later
                                call may succeed */
  rewireTimeout = 4,         /* a deadline passed; the error names its setting */
  rewireLost = 5, /* this process is no longer part of the job: it counts as lost, or the job has
                     stopped, for example because no copy of some state is left. The process can
                     only end; a stopped job begins again at its last checkpoint */
  rewireInternalError = 6
} rewireResult_t;

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a static string for a result. Thread-safe. In librewire.so and in librewire-moe.so. */
REWIRE_API const char* rewireResultString(rewireResult_t result) REWIRE_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* REWIRE_RESULT_H_ */
