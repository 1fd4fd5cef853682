/* Rewire's public C interface, for a training job whose world changes while the job runs.
 *
 * A cooperating job attaches and registers the layout of its state. The job puts everything that
 * changes weights or optimizer state (unscale, clip, optimizer step, schedule) into one function,
 * and passes the function to rewireUpdate() once per step. Between two updates the state is
 * constant, so that Rewire can move it. Without an agent (REWIRE_SOCKET unset) the world never
 * changes, and only rewireUniqueId() and rewireRecover() fail.
 *
 * C99. Every struct begins with its size, which the caller sets: later versions add members at the
 * end. A context is owned by the training thread unless a function says otherwise. No call waits
 * without a limit. rewireLastError() has the reason of a failure: the variable, value and range. */
#ifndef REWIRE_C_API_H_
#define REWIRE_C_API_H_

#include <stddef.h>
#include <stdint.h>

#define REWIRE_API __attribute__((visibility("default")))
#ifdef __cplusplus
#define REWIRE_NOEXCEPT noexcept
#else
#define REWIRE_NOEXCEPT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rewireContext* rewireContext_t;

typedef enum {
  rewireSuccess = 0,
  rewireInvalidArgument = 1, /* the call is wrong and had no effect */
  rewireInvalidUsage = 2,    /* the call is not allowed at this moment */
  rewireUnavailable = 3,     /* the agent or a peer is gone; a later call may succeed */
  rewireTimeout = 4,         /* a deadline passed; the error names its setting */
  rewireLost = 5, /* no copy of some state is left; the job must go back to its last checkpoint */
  rewireInternalError = 6
} rewireResult_t;

/* Returns a static string for a result. Thread-safe. */
REWIRE_API const char* rewireResultString(rewireResult_t result) REWIRE_NOEXCEPT;
/* Returns why the last failed call of this thread failed. Thread-safe. Valid until the next call on
 * this thread. */
REWIRE_API const char* rewireLastError(void) REWIRE_NOEXCEPT;

/* ---- world ------------------------------------------------------------------------------------
 */

typedef struct {
  size_t size;      /* sizeof(rewireWorld_t) */
  uint64_t epoch;   /* only ever increases */
  uint32_t slots;   /* members in the world */
  uint32_t slot;    /* this member's rank in the world, 0 .. slots-1 */
  uint32_t member;  /* this process's id; never changes */
  uint32_t joining; /* 1: the others are training; this member enters at its first rewireUpdate() */
} rewireWorld_t;

typedef struct {
  size_t size; /* sizeof(rewireAttachOptions_t) */
  /* 1: SIGTERM to this process is a reclaim notice: Rewire drains the member, and the outcome of
   * rewireUpdate() is rewireLeave. When every member has such a notice the job ends, and SIGTERM
   * ends the process as it would without Rewire. A signal handler is installed until
   * rewireDetach(); the program's earlier handler is also called. SIGTERM ends a process that is in
   * no world, and it ends the program's children. */
  uint32_t sigterm_is_reclaim;
  uint32_t reserved;
} rewireAttachOptions_t;

/* Connects to the node's agent. Without an agent the context's world comes from RANK and
 * WORLD_SIZE. options may be NULL. Fails for a wrong REWIRE_* value, and when the agent does not
 * answer within 10 s. */
REWIRE_API rewireResult_t rewireAttach(const rewireAttachOptions_t* options,
                                       rewireContext_t* context) REWIRE_NOEXCEPT;
/* Leaves the job. A member that detaches while in a world counts as finished, not as lost. Later
 * calls with this context fail with rewireInvalidUsage. */
REWIRE_API rewireResult_t rewireDetach(rewireContext_t context) REWIRE_NOEXCEPT;
/* Gets the world that this member is in; for a joining member, the world that it will be in. */
REWIRE_API rewireResult_t rewireWorld(rewireContext_t context,
                                      rewireWorld_t* world) REWIRE_NOEXCEPT;
/* Gets 128 bytes for ncclCommInitRank: the same for every member that gives the same name, also for
 * a later joiner. Rewire edits the communicator made with this id when the world changes; the
 * handle stays. Without an agent fails with rewireUnavailable: share an id as without Rewire. */
REWIRE_API rewireResult_t rewireUniqueId(rewireContext_t context, const char* name,
                                         void* id128) REWIRE_NOEXCEPT;

/* Checks whether data that this process has synchronised on is valid. After the loss of a member
 * Rewire aborts the communicators' kernels: cudaStreamSynchronize() then returns success, and the
 * buffers hold garbage until the next NCCL call returns the error. Call rewireCheck() after a
 * stream was synchronised and before its data is used. rewireSuccess: a loss aborted no kernel that
 * the stream has run. rewireUnavailable: a communicator of this process was lost and is neither
 * replaced (rewireRecover(), rewireUpdate()) nor destroyed yet; rewireLastError() has the reason.
 * Thread-safe; needs no context and no agent. Costs one short lock for each communicator. */
REWIRE_API rewireResult_t rewireCheck(void) REWIRE_NOEXCEPT;

/* ---- state ------------------------------------------------------------------------------------
 */

typedef enum {
  rewireReplicated = 0, /* every slot holds all elements */
  rewireSharded = 1 /* slot s of n holds elements rewireShard(elements, n, s): ZeRO's division */
} rewireLayout_t;

typedef enum {
  rewireConstant =
      0, /* changes only inside the update function: moved during forward and backward */
  rewireVolatile =
      1, /* may change at any time (running statistics, progress, loss scale): moved at the
            boundary, in the pause. A copy is taken after every update, so keep it small */
  rewireTransient = 2 /* made by forward and backward, used by the update (gradients): moved at the
                         boundary like volatile state. Not restored after a loss, because the step
                         is repeated */
} rewireChange_t;

typedef enum { rewireHost = 0, rewireDevice = 1 } rewireMemory_t;

typedef struct {
  size_t size;       /* sizeof(rewireTensor_t) */
  const char* name;  /* unique; the same on every member */
  uint64_t elements; /* of the whole logical tensor */
  uint32_t element_bytes;
  rewireLayout_t layout;
  rewireChange_t change;
  rewireMemory_t memory;
  void* data; /* this member's part; for a joiner, its future part */
} rewireTensor_t;

/* Computes the elements [*begin, *end) that slot `slot` of `slots` holds of a sharded tensor: equal
 * chunks of ceil(elements / slots), the last ones shorter or empty. Pure. */
static inline void rewireShard(uint64_t elements, uint32_t slots, uint32_t slot, uint64_t* begin,
                               uint64_t* end) {
  const uint64_t chunk = (elements + slots - 1) / slots;
  *begin = chunk * slot < elements ? chunk * slot : elements;
  *end = *begin + chunk < elements ? *begin + chunk : elements;
}

/* The training thread calls these inside rewireUpdate() or rewireRecover(). Rewire's own thread
 * calls allocate and in_place while training continues. */
typedef struct {
  size_t size; /* sizeof(rewireCallbacks_t) */
  void* arg;
  /* Allocates memory, of the tensor's kind, for this member's new part of a sharded tensor. NULL:
   * no room; then the change is refused and the old world continues. */
  void* (*allocate)(void* arg, const char* tensor, uint64_t bytes);
  /* Adopts a committed change: `data` (from allocate or in place, filled) replaces the old part.
   * The program may free the old part's memory, except for memory of the new part. Called before
   * on_world, for every sharded tensor whose part differs in the new world. A part that stays the
   * same needs neither allocate nor adopt. */
  void (*adopt)(void* arg, const char* tensor, void* data, uint64_t begin, uint64_t end);
  /* Frees the memory that allocate returned or in_place added, because the change did not happen.
   * Called once for each successful call of these, perhaps only after the next change has asked for
   * memory. */
  void (*discard)(void* arg, const char* tensor, void* data);
  /* Reports, after all adopts, the member's slot and the number of slots from now on. */
  void (*on_world)(void* arg, const rewireWorld_t* world);
  /* Asks, before allocate and on the same thread, about constant tensors; may be NULL. 1: the new
   * part [begin, end) has memory at the old part's address. Each element has the address that it
   * has in the old part, or would have if that part reached so far: data + (element - first element
   * of the old part) * element_bytes. Rewire then copies only the elements that the member lacks,
   * which need memory (cuMemMap can extend a part; a smaller part already has its memory). 0: the
   * new part gets memory from allocate. The old part must not change until adopt. */
  int (*in_place)(void* arg, const char* tensor, uint64_t begin, uint64_t end);
} rewireCallbacks_t;

/* Describes data parallelism over all slots. zero_stage 0: nothing is sharded; 1: optimizer state
 * is sharded. Call before the first rewireUpdate(). */
typedef struct {
  size_t size;            /* sizeof(rewireParallel_t) */
  uint32_t data_parallel; /* 0: all slots of the world, the only value taken in this version */
  uint32_t zero_stage;    /* 0 or 1 */
} rewireParallel_t;

REWIRE_API rewireResult_t rewireSetParallel(rewireContext_t context,
                                            const rewireParallel_t* parallel,
                                            const rewireCallbacks_t* callbacks) REWIRE_NOEXCEPT;
/* Registers one tensor. All members must register the same names with the same logical shape before
 * their first rewireUpdate(). */
REWIRE_API rewireResult_t rewireRegisterTensor(rewireContext_t context,
                                               const rewireTensor_t* tensor) REWIRE_NOEXCEPT;

/* ---- the update boundary ----------------------------------------------------------------------
 */

typedef enum {
  rewireContinue = 0,     /* the update was applied; the world has not changed */
  rewireWorldChanged = 1, /* the update was applied in the new world; on_world has been called */
  rewireRepeat = 2, /* a member was lost and there is a new world. The state is that before this
                       step or, when the update had begun, that of the step before: progress tensors
                       say which step comes next. The update was not applied */
  rewireLeave = 3   /* this member is out of the world: exit with status 0. The update was not
                       applied by this member */
} rewireOutcomeKind_t;

typedef struct {
  size_t size; /* sizeof(rewireOutcome_t) */
  rewireOutcomeKind_t kind;
  uint32_t reserved;
  rewireWorld_t world;
  uint64_t pause_ns; /* time that the change took inside this call, without the update function */
  uint64_t bytes_in; /* state that this member received for this change */
  uint64_t bytes_out;
} rewireOutcome_t;

/* Applies the update and returns 0 for success. The function may use the communicators (of the new
 * world, when the world changed). The function must not call Rewire: rewireUpdate() and
 * rewireRecover() are refused there. */
typedef int (*rewireUpdateFn)(void* arg);

/* Passes the update boundary. Call once per step, after the last reduction of gradients has been
 * enqueued and waited for. Adds less than 200 ns when nothing is pending. outcome may be NULL only
 * in a job that never changes its world. */
REWIRE_API rewireResult_t rewireUpdate(rewireContext_t context, rewireUpdateFn update, void* arg,
                                       rewireOutcome_t* outcome) REWIRE_NOEXCEPT;
/* Waits until the world is whole again. Call when forward or backward failed because an NCCL call,
 * or a wait for one, failed. Waits at most REWIRE_SILENCE_MS + REWIRE_BUILD_MS +
 * 11 * REWIRE_BOUNDARY_MS; time in which this process did not run does not count.
 * rewireUnavailable: no loss is known after REWIRE_SILENCE_MS + REWIRE_BOUNDARY_MS, so that the
 * error has another cause. */
REWIRE_API rewireResult_t rewireRecover(rewireContext_t context,
                                        rewireOutcome_t* outcome) REWIRE_NOEXCEPT;

/* ---- recordings -------------------------------------------------------------------------------
 *
 * A recording is a file with the counts of a mixture-of-experts router, for `rewire moe replay`.
 * These functions need no context. A recording is thread-compatible. */

typedef struct rewireCounts* rewireCounts_t;

/* Creates the file `path`. Fails with rewireInvalidArgument when the file exists, when a number is
 * 0, and when nodes * devices_of_node * experts is above 2^24. */
REWIRE_API rewireResult_t rewireCountsCreate(const char* path, uint32_t nodes,
                                             uint32_t devices_of_node, uint32_t experts,
                                             rewireCounts_t* counts) REWIRE_NOEXCEPT;
/* Appends one layer's micro-batch: tokens[device * experts + expert] is the number of tokens on the
 * device for the expert. The record is in the file when this function returns. After
 * rewireUnavailable (disk full) the file ends with the record before, and the next may be tried. */
REWIRE_API rewireResult_t rewireCountsAdd(rewireCounts_t counts, uint64_t micro_batch,
                                          uint32_t layer, const uint32_t* tokens) REWIRE_NOEXCEPT;
/* Closes the file. `counts` is invalid afterwards. */
REWIRE_API rewireResult_t rewireCountsClose(rewireCounts_t counts) REWIRE_NOEXCEPT;

/* ---- experts ----------------------------------------------------------------------------------
 *
 * Balances an expert-parallel layer over the devices of one node while the layer computes. After
 * the program's own dispatch, copy engines move weights and tokens of some experts to other
 * devices. The results come back before the program's own combine. docs/moe.md shows the calls in a
 * layer.
 *
 * Needs no context and no agent. An object is owned by one thread with a current CUDA context.
 * Every process of the node must make the same calls in the same order. Pointers are to device
 * memory, except arrays and structs. After the loss of a process of the node, streams that wait for
 * that process are released, and every call fails with rewireUnavailable. Discard everything
 * computed since the last successful rewireExpertsCheck(). */

typedef struct rewireExperts* rewireExperts_t;
typedef struct rewireMoved* rewireMoved_t; /* the moves of a forward round */

/* Members after `token_bytes` have a default, the last value of their comment; 0 selects it. */
typedef struct {
  size_t size;           /* sizeof(rewireExpertsOptions_t) */
  const char* name;      /* unique among the groups of the machine: letters, digits, - and _ */
  uint32_t rank;         /* in the node */
  uint32_t ranks;        /* processes of the node, 2..16 */
  uint32_t experts;      /* owned by each process, 1..256 */
  uint32_t rows;         /* room for moved tokens on each device */
  uint64_t weight_bytes; /* of one expert */
  uint64_t grad_bytes;   /* of its weights' gradients; 0: there is no backward */
  uint64_t token_bytes;  /* of one row, in and out */
  uint32_t slots;        /* room for moved experts on each device, 1..16; 8 */
  uint32_t dynamic;      /* minimum of movable experts of each process; 4 */
  uint32_t copies;       /* experts copied in one round by all processes; slots * ranks */
  uint32_t gate_percent; /* nothing moves while busiest/mean load is at most this percentage; 105 */
  uint32_t least;        /* minimum of tokens for a copy; 1 */
  uint32_t late_rounds;  /* this number of late rounds in a row halves `copies`; 8 */
  uint32_t late_percent; /* late: the wait for copies exceeds this percentage of the round; 5 */
  uint32_t patience_us;  /* rewireExpertsNext() waits this long for other processes; 500 */
  uint32_t meeting_ms;   /* rewireExpertsOpen() waits this long for them; 60000 */
} rewireExpertsOptions_t;

/* One layer of one micro-batch. Rows are sorted by expert. */
typedef struct {
  size_t size; /* sizeof(rewireRound_t) */
  void* stream;
  uint32_t layer;             /* a small number: Rewire remembers the loads of each layer */
  uint32_t parts;             /* contiguous pieces of an expert's weights */
  const uint32_t* tokens;     /* number for each own expert */
  void* const* weights;       /* piece p of own expert e at [e * parts + p] */
  const uint64_t* part_bytes; /* of each piece; the sum is weight_bytes */
  const void* x;              /* inputs */
  const void* errors;         /* backward: the gradients of the outputs */
  void* out;                  /* outputs; backward: the gradients of the inputs */
  uint64_t version; /* of the layer's weights: the same number as before means unchanged weights,
                     * so that Rewire copies some of them only once; 0: unknown */
} rewireRound_t;

/* Rows of one expert for this device to compute. */
typedef struct {
  uint32_t expert; /* number in the node: owner's rank * experts + own number */
  uint32_t first;  /* the first of these rows among the expert's rows */
  uint32_t rows;
  uint32_t recompute;  /* backward: 1: another device computed these rows in the forward pass */
  const void* weights; /* NULL: this process's own; otherwise all pieces, consecutive */
  const void* x;
  const void* errors;
  void* out;
  void* grad; /* destination of the gradients of weights that are not NULL */
} rewireSegment_t;

typedef struct {
  uint32_t expert; /* number among the own experts */
  uint32_t helper; /* the rank that computed the gradients */
  const void* data;
} rewireGradient_t;

typedef struct {
  size_t size; /* sizeof(rewireExpertsCounts_t) */
  uint64_t rounds;
  uint64_t given;    /* moves of own experts */
  uint64_t received; /* moves of other processes' experts to this device */
  uint64_t given_rows;
  uint64_t copied_bytes; /* copied between devices by this process */
  uint64_t late_rounds;
  uint64_t copies; /* the present limit of copies; 0: nothing moves any more */
} rewireExpertsCounts_t;

/* Meets the other processes, allocates all memory and tests the path to each process. After a
 * failure train without balancing. */
REWIRE_API rewireResult_t rewireExpertsOpen(const rewireExpertsOptions_t* options,
                                            rewireExperts_t* experts) REWIRE_NOEXCEPT;
/* Begins a round. Call after the dispatch. moved: NULL for a forward round; for a backward round,
 * the result of rewireExpertsMoved() for the forward round. Returns segments that stay on this
 * device under every plan: launch their GEMMs now. Arrays are valid until the next
 * rewireExpertsBegin(). After refused arguments nothing has begun, and the round must still be
 * begun, because the other processes count it. */
REWIRE_API rewireResult_t rewireExpertsBegin(rewireExperts_t experts, const rewireRound_t* round,
                                             rewireMoved_t moved, const rewireSegment_t** segments,
                                             uint32_t* count) REWIRE_NOEXCEPT;
/* Returns more segments to launch: own segments, or segments that another process has sent. Call
 * after the GEMMs of all earlier segments, until `count` is 0. Valid until the next such call. */
REWIRE_API rewireResult_t rewireExpertsNext(rewireExperts_t experts,
                                            const rewireSegment_t** segments,
                                            uint32_t* count) REWIRE_NOEXCEPT;
/* Ends a round. Call after all GEMMs: work enqueued afterwards on the stream sees all rows of
 * `out`. Backward: add the gradients to your own in this order. */
REWIRE_API rewireResult_t rewireExpertsCollect(rewireExperts_t experts,
                                               const rewireGradient_t** gradients,
                                               uint32_t* count) REWIRE_NOEXCEPT;
/* Gets the moves of the round collected last. Free the object after the backward round. */
REWIRE_API rewireResult_t rewireExpertsMoved(rewireExperts_t experts,
                                             rewireMoved_t* moved) REWIRE_NOEXCEPT;
REWIRE_API rewireResult_t rewireMovedFree(rewireMoved_t moved) REWIRE_NOEXCEPT;
/* Succeeds when all results that the device has computed so far are valid. Wait for the stream
 * first. */
REWIRE_API rewireResult_t rewireExpertsCheck(rewireExperts_t experts) REWIRE_NOEXCEPT;
REWIRE_API rewireResult_t rewireExpertsCounts(rewireExperts_t experts,
                                              rewireExpertsCounts_t* counts) REWIRE_NOEXCEPT;
/* Leaves together with the other processes; waits at most 10 s for them. */
REWIRE_API rewireResult_t rewireExpertsEnd(rewireExperts_t experts) REWIRE_NOEXCEPT;

/* ---- fully sharded experts --------------------------------------------------------------------
 *
 * Every device keeps a chunk of every expert. Before a layer is used, the experts of its placement
 * are restored into the devices' slots. Afterwards their gradients are added to the chunks. Both
 * happen beside GEMMs and never beside the program's token all-to-alls. docs/moe.md shows the calls
 * in a step.
 *
 * Needs no context and no agent. An object is owned by one thread with a current CUDA context.
 * Every rank must make the same calls in the same order with the same numbers. Calls only enqueue
 * work on streams, except Open, Close, a Place that changes something, and NCCL's connects in the
 * first step. A call out of turn fails with rewireInvalidUsage, and a wrong argument fails with
 * rewireInvalidArgument, both without effect. After any other failure the step cannot continue:
 * abort its communicators, then close. */

typedef struct rewireFsep* rewireFsep_t;

typedef struct {
  size_t size;              /* sizeof(rewireFsepOptions_t) */
  void* comm;               /* blocking ncclComm_t for this object alone; ranks are the devices */
  uint32_t rank;            /* rank of this device */
  uint32_t nodes;           /* the devices of a node have consecutive ranks */
  uint32_t devices_of_node; /* devices of each node */
  uint32_t layers;
  uint32_t experts;        /* experts of a layer */
  uint32_t slots;          /* experts of one layer that a device holds at a time */
  uint32_t prefetch;       /* weights move this number of visits ahead, 0..layers; each one takes
                              the memory of all slots once more */
  uint32_t weight_bytes;   /* of an element */
  uint32_t gradient_bytes; /* of an element: 2: bfloat16, 4: 32-bit floats */
  uint64_t elements;       /* of a chunk: an expert has one chunk per rank, the last are padded */
  void* const* weights;    /* of each layer: the rank's chunk of each expert, in device memory */
  void* const* gradients;  /* of each layer: the rank's chunk, to which gradients are added */
} rewireFsepOptions_t;

/* Allocates all memory. Uses the NCCL of the process: the program's own, or the shim. */
REWIRE_API rewireResult_t rewireFsepOpen(const rewireFsepOptions_t* options,
                                         rewireFsep_t* fsep) REWIRE_NOEXCEPT;
/* Sets a layer's placement from the next step on: slots[device * options.slots + slot] is an
 * expert, or UINT32_MAX for none. Every expert must have a slot. Call between steps, and before a
 * layer's first step. A changed placement waits at most a minute for the last step's gradients:
 * rewireTimeout. */
REWIRE_API rewireResult_t rewireFsepPlace(rewireFsep_t fsep, uint32_t layer,
                                          const uint32_t* slots) REWIRE_NOEXCEPT;
/* Begins a step of `visits` uses of a layer's experts. layers: the layer of each visit.
 * leave_gradients: whether the visit leaves gradients (a backward pass). The chunks' weights must
 * be final when `stream` reaches this point. Then make these calls for each visit, each on the
 * stream that does the work or waits for it: BeginTokens, all-to-all to the experts, EndTokens;
 * BeginExperts, GEMMs, EndExperts; BeginTokens, all-to-all back, EndTokens. */
REWIRE_API rewireResult_t rewireFsepBegin(rewireFsep_t fsep, uint32_t visits,
                                          const uint32_t* layers, const uint32_t* leave_gradients,
                                          void* stream) REWIRE_NOEXCEPT;
REWIRE_API rewireResult_t rewireFsepBeginTokens(rewireFsep_t fsep, void* stream) REWIRE_NOEXCEPT;
REWIRE_API rewireResult_t rewireFsepEndTokens(rewireFsep_t fsep, void* stream) REWIRE_NOEXCEPT;
/* Returns the slots' memory. The weights and the gradients of slot s begin at element
 * s * ranks * elements. *gradients is NULL in a visit that leaves none. Write all gradients,
 * because the memory holds those of another visit. Valid in the stream's order until EndExperts. */
REWIRE_API rewireResult_t rewireFsepBeginExperts(rewireFsep_t fsep, void* stream, void** weights,
                                                 void** gradients) REWIRE_NOEXCEPT;
/* Ends the use of the slots. Call after their last use, which may be later than the wait of the
 * tokens' all-to-all back. */
REWIRE_API rewireResult_t rewireFsepEndExperts(rewireFsep_t fsep, void* stream) REWIRE_NOEXCEPT;
/* Ends the step. Work enqueued later on `stream` sees all gradients in the chunks and may change
 * their weights. */
REWIRE_API rewireResult_t rewireFsepFinish(rewireFsep_t fsep, void* stream) REWIRE_NOEXCEPT;
/* Waits for the work that was begun. The program owns the communicator before and after. */
REWIRE_API rewireResult_t rewireFsepClose(rewireFsep_t fsep) REWIRE_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* REWIRE_C_API_H_ */
