/* Rewire's public C interface: a training job that lets its world change while it runs.
 *
 * A cooperating job attaches, says how its state is laid out, and puts everything that changes
 * weights or optimizer state (unscale, clip, optimizer step, schedule) into one function that it
 * hands to rewireUpdate() once per step. Between two updates the state is constant, and that is
 * when Rewire moves it. Without an agent (REWIRE_SOCKET unset) every call works and the world never
 * changes.
 *
 * C99. Every struct begins with its size, set by the caller: later versions add members at the end.
 * Unless said otherwise a context is used from one thread, the one that trains. No call waits for
 * ever. On failure rewireLastError() has the reason, naming the variable, value and range. */
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
  rewireInvalidArgument = 1, /* the call is wrong; nothing has happened */
  rewireInvalidUsage = 2,    /* the call is right, the moment is not */
  rewireUnavailable = 3,     /* the agent or a peer is gone; may pass */
  rewireTimeout = 4,         /* a deadline passed; its setting is named */
  rewireLost = 5, /* state exists nowhere any more; the job must go back to its last checkpoint */
  rewireInternalError = 6
} rewireResult_t;

/* A static string for a result. Thread-safe. */
REWIRE_API const char* rewireResultString(rewireResult_t result) REWIRE_NOEXCEPT;
/* Why the last failed call on this thread failed. Valid until the next call on this thread. */
REWIRE_API const char* rewireLastError(void) REWIRE_NOEXCEPT;

/* ---- world ------------------------------------------------------------------------------------
 */

typedef struct {
  size_t size;      /* sizeof(rewireWorld_t) */
  uint64_t epoch;   /* only ever increases */
  uint32_t slots;   /* members in the world */
  uint32_t slot;    /* this member's rank in it, 0 .. slots-1 */
  uint32_t member;  /* this process's id; never changes */
  uint32_t joining; /* 1: the others are training; this member enters at its first rewireUpdate() */
} rewireWorld_t;

typedef struct {
  size_t size; /* sizeof(rewireAttachOptions_t) */
  /* 1: SIGTERM to this process is a reclaim notice: Rewire drains the member, and rewireUpdate()
   * says rewireLeave. When every member has such a notice the job ends, and SIGTERM ends the
   * process as it would without Rewire. A signal handler is installed until rewireDetach(); a
   * handler of the program's that was there before is also called. SIGTERM ends the process when it
   * is in no world, and it ends the program's children. */
  uint32_t sigterm_is_reclaim;
  uint32_t reserved;
} rewireAttachOptions_t;

/* Connects to the node's agent; without one gives a context whose world is RANK and WORLD_SIZE.
 * options may be NULL. Fails on a wrong REWIRE_* value, and when the agent does not answer within
 * 10 s. */
REWIRE_API rewireResult_t rewireAttach(const rewireAttachOptions_t* options,
                                       rewireContext_t* context) REWIRE_NOEXCEPT;
/* Leaves. A member that detaches while in a world is treated as finished, not as lost. Later calls
 * with this context are refused with rewireInvalidUsage. */
REWIRE_API rewireResult_t rewireDetach(rewireContext_t context) REWIRE_NOEXCEPT;
/* The world as this member must see it now. For a joining member: the world it will be in. */
REWIRE_API rewireResult_t rewireWorld(rewireContext_t context,
                                      rewireWorld_t* world) REWIRE_NOEXCEPT;
/* 128 bytes for ncclCommInitRank: the same for every member that gives the same name, now or
 * joining later. The communicator made with it is edited when the world changes; the handle stays.
 * Fails with rewireUnavailable without an agent: make and share an id as without Rewire. */
REWIRE_API rewireResult_t rewireUniqueId(rewireContext_t context, const char* name,
                                         void* id128) REWIRE_NOEXCEPT;

/* Whether data that this process has synchronised on is valid. After the loss of a member Rewire
 * aborts the communicators' kernels: cudaStreamSynchronize() then returns success, and the buffers
 * hold garbage until the next NCCL call returns the error. Call rewireCheck() after a stream was
 * synchronised and before its data is used. rewireSuccess: no kernel that the stream has run was
 * aborted by a loss. rewireUnavailable: a communicator of this process was lost and is neither
 * replaced (rewireRecover(), rewireUpdate()) nor destroyed yet; rewireLastError() has the reason.
 * Thread-safe, from any thread, without a context and without an agent. Costs one short lock for
 * each communicator. */
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
            boundary, in the pause; a copy is taken after every update, so keep it small */
  rewireTransient = 2 /* made by forward and backward, used up by the update (gradients): moved at
                         the boundary like volatile ones; after a loss it is not restored, because
                         the step is repeated */
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
  void* data; /* this member's part; for a joiner the part it will have */
} rewireTensor_t;

/* Elements [*begin, *end) that slot `slot` of `slots` holds of a sharded tensor: equal chunks of
 * ceil(elements / slots), the last ones shorter or empty. Pure. */
static inline void rewireShard(uint64_t elements, uint32_t slots, uint32_t slot, uint64_t* begin,
                               uint64_t* end) {
  const uint64_t chunk = (elements + slots - 1) / slots;
  *begin = chunk * slot < elements ? chunk * slot : elements;
  *end = *begin + chunk < elements ? *begin + chunk : elements;
}

/* Called on the training thread, inside rewireUpdate() or rewireRecover(), except allocate and
 * in_place, which are called from Rewire's own thread while training goes on. */
typedef struct {
  size_t size; /* sizeof(rewireCallbacks_t) */
  void* arg;
  /* Memory for this member's new part of a sharded tensor, of the tensor's kind; NULL: no room, and
   * the change is refused while the old world trains on. */
  void* (*allocate)(void* arg, const char* tensor, uint64_t bytes);
  /* The change is committed: `data` (from allocate or in place, filled) replaces the old part,
   * whose memory the program may free as far as the new part does not lie in it. Called for every
   * sharded tensor whose part is another one in the new world (one whose part stays is left in
   * place: neither allocate nor adopt), before on_world. */
  void (*adopt)(void* arg, const char* tensor, void* data, uint64_t begin, uint64_t end);
  /* The change did not happen: free what allocate gave or in_place added. One call for each of
   * theirs that succeeded, perhaps only after the next change has asked for memory. */
  void (*discard)(void* arg, const char* tensor, void* data);
  /* After all adopts: the member's slot and the number of slots from here on. */
  void (*on_world)(void* arg, const rewireWorld_t* world);
  /* Asked before allocate, on the same thread, for constant tensors; may be NULL. 1: the new part
   * [begin, end) has memory where the old one lies, every element at the address that it has, or
   * would have, in a part that reaches so far: data + (element - first element of the old part) *
   * element_bytes. What the member has is not copied then, and only what it lacks needs memory
   * (cuMemMap makes a part grow so; one that only becomes smaller has the memory already). 0: the
   * new part has memory of its own, from allocate. Until adopt the old part stays as it is. */
  int (*in_place)(void* arg, const char* tensor, uint64_t begin, uint64_t end);
} rewireCallbacks_t;

/* Data parallelism over all slots; zero_stage 0: nothing is sharded, 1: optimizer state is.
 * Call before the first rewireUpdate(). */
typedef struct {
  size_t size;            /* sizeof(rewireParallel_t) */
  uint32_t data_parallel; /* 0: all slots of the world, the only value taken in this version */
  uint32_t zero_stage;    /* 0 or 1 */
} rewireParallel_t;

REWIRE_API rewireResult_t rewireSetParallel(rewireContext_t context,
                                            const rewireParallel_t* parallel,
                                            const rewireCallbacks_t* callbacks) REWIRE_NOEXCEPT;
/* Registers one tensor; all members register the same names with the same logical shape before
 * their first rewireUpdate(). */
REWIRE_API rewireResult_t rewireRegisterTensor(rewireContext_t context,
                                               const rewireTensor_t* tensor) REWIRE_NOEXCEPT;

/* ---- the update boundary ----------------------------------------------------------------------
 */

typedef enum {
  rewireContinue = 0,     /* the update was applied; the world is as it was */
  rewireWorldChanged = 1, /* the update was applied in the new world; on_world has been called */
  rewireRepeat = 2,       /* a member was lost; the state is that of before this step (or, when the
                             update had begun, of the step before), in a new world: progress tensors
                             say which step comes next. The update was not applied */
  rewireLeave = 3         /* this member is out of the world: exit with status 0. The update was not
                             applied here */
} rewireOutcomeKind_t;

typedef struct {
  size_t size; /* sizeof(rewireOutcome_t) */
  rewireOutcomeKind_t kind;
  uint32_t reserved;
  rewireWorld_t world;
  uint64_t pause_ns; /* time inside this call that the change took, the update function left out */
  uint64_t bytes_in; /* state received for this change, by this member */
  uint64_t bytes_out;
} rewireOutcome_t;

/* Applies the update: 0 for success. It may use the communicators (of the new world, when it
 * changed). It must not call Rewire: rewireUpdate() and rewireRecover() are refused there. */
typedef int (*rewireUpdateFn)(void* arg);

/* The update boundary. Call it once per step, after the last reduction of gradients has been
 * enqueued and waited for. Adds less than 200 ns when nothing is pending. outcome may be NULL only
 * in a job that never changes its world. */
REWIRE_API rewireResult_t rewireUpdate(rewireContext_t context, rewireUpdateFn update, void* arg,
                                       rewireOutcome_t* outcome) REWIRE_NOEXCEPT;
/* Forward or backward failed because an NCCL call or a wait for one failed: waits (at most
 * REWIRE_SILENCE_MS + REWIRE_BUILD_MS + 11 * REWIRE_BOUNDARY_MS) until the world is whole again.
 * rewireUnavailable when no loss is known after REWIRE_SILENCE_MS + REWIRE_BOUNDARY_MS: the error
 * was not ours. A time for which this process did not run does not count. */
REWIRE_API rewireResult_t rewireRecover(rewireContext_t context,
                                        rewireOutcome_t* outcome) REWIRE_NOEXCEPT;

/* ---- recordings -------------------------------------------------------------------------------
 *
 * What a mixture-of-experts router counted, kept in a file for `rewire moe replay`. Needs no
 * context. A recording is used by one thread at a time. */

typedef struct rewireCounts* rewireCounts_t;

/* Makes the file `path`. Fails with rewireInvalidArgument where there is one already, and where a
 * number is 0 or nodes * devices_of_node * experts is above 2^24. */
REWIRE_API rewireResult_t rewireCountsCreate(const char* path, uint32_t nodes,
                                             uint32_t devices_of_node, uint32_t experts,
                                             rewireCounts_t* counts) REWIRE_NOEXCEPT;
/* Appends one layer's micro-batch: tokens[device * experts + expert] are those on the device for
 * the expert. They are in the file when this returns; after rewireUnavailable (the disk is full)
 * the file ends with the record before, and the next one may be tried. */
REWIRE_API rewireResult_t rewireCountsAdd(rewireCounts_t counts, uint64_t micro_batch,
                                          uint32_t layer, const uint32_t* tokens) REWIRE_NOEXCEPT;
/* `counts` is gone after it. */
REWIRE_API rewireResult_t rewireCountsClose(rewireCounts_t counts) REWIRE_NOEXCEPT;

/* ---- experts ----------------------------------------------------------------------------------
 *
 * Evens out an expert-parallel layer over the devices of one node while it computes: after the
 * program's own dispatch, weights and tokens of some experts go to other devices by copy engine,
 * and results come back before its own combine. docs/moe.md says where the calls go. Needs no
 * context and no agent; all calls of one object from one thread, in a current CUDA context, in the
 * same order on every process of the node. Pointers are to device memory but for arrays and
 * structs. When a process of the node is lost, streams that wait for it are let go, and every call
 * fails with rewireUnavailable: what was computed since the last rewireExpertsCheck() that
 * succeeded is not to be used. */

typedef struct rewireExperts* rewireExperts_t;
typedef struct rewireMoved* rewireMoved_t; /* what a forward round moved */

/* What is 0 behind `rows` has a default. */
typedef struct {
  size_t size;           /* sizeof(rewireExpertsOptions_t) */
  const char* name;      /* unlike any other group's on the machine: letters, digits, - and _ */
  uint32_t rank;         /* in the node */
  uint32_t ranks;        /* processes of the node, 2..16 */
  uint32_t experts;      /* that each process owns, 1..256 */
  uint32_t rows;         /* moved tokens that a device has room for */
  uint64_t weight_bytes; /* of one expert */
  uint64_t grad_bytes;   /* of its weights' gradients; 0: there is no backward */
  uint64_t token_bytes;  /* of one row, in and out */
  uint32_t slots;        /* moved experts that a device has room for, 1..16; 8 */
  uint32_t dynamic;      /* experts of each process that may be moved, at least; 4 */
  uint32_t copies;       /* experts copied in one round, all together; slots * ranks */
  uint32_t gate_percent; /* nothing moves while the busiest has at most so much of the mean; 105 */
  uint32_t least;        /* tokens for which a copy is made; 1 */
  uint32_t late_rounds;  /* so many late rounds in a row halve `copies`; 8 */
  uint32_t late_percent; /* late: copies were waited for longer than that of the round; 5 */
  uint32_t patience_us;  /* that rewireExpertsNext() waits for other processes; 500 */
  uint32_t meeting_ms;   /* that rewireExpertsOpen() waits for them; 60000 */
} rewireExpertsOptions_t;

/* One layer of one micro-batch. An expert's rows lie together, experts in their order. */
typedef struct {
  size_t size; /* sizeof(rewireRound_t) */
  void* stream;
  uint32_t layer;             /* small numbers: what was seen of each is remembered */
  uint32_t parts;             /* contiguous pieces of an expert's weights */
  const uint32_t* tokens;     /* of each own expert */
  void* const* weights;       /* piece p of own expert e at [e * parts + p] */
  const uint64_t* part_bytes; /* of each piece; together weight_bytes */
  const void* x;              /* inputs */
  const void* errors;         /* backward: the gradients of the outputs */
  void* out;                  /* outputs; backward: the gradients of the inputs */
  uint64_t version; /* of the layer's weights: the same number as before says that they are
                     * what they were, and some need not be copied again; 0: unknown */
} rewireRound_t;

/* Rows of one expert for this device to compute. */
typedef struct {
  uint32_t expert; /* of the node: owner's rank * experts + own number */
  uint32_t first;  /* of the expert's rows */
  uint32_t rows;
  uint32_t recompute;  /* backward: 1: another device computed these rows forward */
  const void* weights; /* NULL: this process's own; otherwise all pieces one behind the other */
  const void* x;
  const void* errors;
  void* out;
  void* grad; /* for the gradients of such weights */
} rewireSegment_t;

typedef struct {
  uint32_t expert; /* own number */
  uint32_t helper; /* rank */
  const void* data;
} rewireGradient_t;

typedef struct {
  size_t size; /* sizeof(rewireExpertsCounts_t) */
  uint64_t rounds;
  uint64_t given;    /* moves of own experts */
  uint64_t received; /* moves of others' experts to here */
  uint64_t given_rows;
  uint64_t copied_bytes; /* between devices, by this process */
  uint64_t late_rounds;
  uint64_t copies; /* the budget that is left; 0: nothing is moved any more */
} rewireExpertsCounts_t;

/* Meets the other processes, allocates all memory, tries the path to each. Where it fails, train
 * without it. */
REWIRE_API rewireResult_t rewireExpertsOpen(const rewireExpertsOptions_t* options,
                                            rewireExperts_t* experts) REWIRE_NOEXCEPT;
/* Behind the dispatch. `moved`: NULL forward; backward what rewireExpertsMoved() gave for the
 * forward round. Some segments that stay here whatever is planned: launch their GEMMs now. Arrays
 * are valid until the next rewireExpertsBegin(). Where the arguments are refused nothing has begun,
 * and the round is still to be begun: the others count it. */
REWIRE_API rewireResult_t rewireExpertsBegin(rewireExperts_t experts, const rewireRound_t* round,
                                             rewireMoved_t moved, const rewireSegment_t** segments,
                                             uint32_t* count) REWIRE_NOEXCEPT;
/* Behind the GEMMs of all segments so far: what else to launch now, own ones or what another
 * process has sent. Again and again until `count` is 0: that was all. Valid until the next such
 * call. */
REWIRE_API rewireResult_t rewireExpertsNext(rewireExperts_t experts,
                                            const rewireSegment_t** segments,
                                            uint32_t* count) REWIRE_NOEXCEPT;
/* Behind all GEMMs: from here on the stream has all rows of `out`. Backward: add the gradients to
 * your own in this order. */
REWIRE_API rewireResult_t rewireExpertsCollect(rewireExperts_t experts,
                                               const rewireGradient_t** gradients,
                                               uint32_t* count) REWIRE_NOEXCEPT;
/* What the round that was collected last has moved; free it after the backward round. */
REWIRE_API rewireResult_t rewireExpertsMoved(rewireExperts_t experts,
                                             rewireMoved_t* moved) REWIRE_NOEXCEPT;
REWIRE_API rewireResult_t rewireMovedFree(rewireMoved_t moved) REWIRE_NOEXCEPT;
/* Whether all that the device has computed so far is to be used. Wait for the stream first. */
REWIRE_API rewireResult_t rewireExpertsCheck(rewireExperts_t experts) REWIRE_NOEXCEPT;
REWIRE_API rewireResult_t rewireExpertsCounts(rewireExperts_t experts,
                                              rewireExpertsCounts_t* counts) REWIRE_NOEXCEPT;
/* Leaves together with the other processes; waits at most 10 s for them. */
REWIRE_API rewireResult_t rewireExpertsEnd(rewireExperts_t experts) REWIRE_NOEXCEPT;

/* ---- fully sharded experts --------------------------------------------------------------------
 *
 * Every device keeps a chunk of every expert; before a layer is used, its placement's experts are
 * restored into the devices' slots, and their gradients are added to the chunks afterwards, beside
 * GEMMs and never beside the program's token all-to-alls. docs/moe.md says where the calls go.
 * Needs no context and no agent; all calls of one object from one thread, in a current CUDA
 * context, in the same order with the same numbers on every rank. Calls only put work on streams,
 * but for Open, Close, a Place that changes something, and what NCCL connects in the first step. A
 * call out of turn is refused with rewireInvalidUsage, a wrong argument with rewireInvalidArgument,
 * and nothing has happened; after any other failure the step cannot go on: abort its communicators,
 * then close. */

typedef struct rewireFsep* rewireFsep_t;

typedef struct {
  size_t size;              /* sizeof(rewireFsepOptions_t) */
  void* comm;               /* ncclComm_t for this alone, blocking; its ranks are the devices */
  uint32_t rank;            /* of this device */
  uint32_t nodes;           /* a node's devices are consecutive ranks */
  uint32_t devices_of_node; /* of each */
  uint32_t layers;
  uint32_t experts;        /* of a layer */
  uint32_t slots;          /* of a device: experts of one layer that it has at a time */
  uint32_t prefetch;       /* weights move so many visits ahead, 0..layers; each takes all slots'
                              memory once more */
  uint32_t weight_bytes;   /* of an element */
  uint32_t gradient_bytes; /* of an element: 2: bfloat16, 4: 32-bit floats */
  uint64_t elements;       /* of a chunk: an expert is one per rank, the last ones padded */
  void* const* weights;    /* of each layer: the rank's chunk of each expert, in device memory */
  void* const* gradients;  /* likewise: what the slots' gradients are added to */
} rewireFsepOptions_t;

/* Allocates all memory. NCCL is what the process has of it: the program's own, or the shim. */
REWIRE_API rewireResult_t rewireFsepOpen(const rewireFsepOptions_t* options,
                                         rewireFsep_t* fsep) REWIRE_NOEXCEPT;
/* From the next step on, until there is another: slots[device * options.slots + slot] is an expert,
 * or UINT32_MAX for none, and every expert has a slot. Between steps; before a layer's first. A
 * placement that changes waits for the last step's gradients, a minute at most: rewireTimeout. */
REWIRE_API rewireResult_t rewireFsepPlace(rewireFsep_t fsep, uint32_t layer,
                                          const uint32_t* slots) REWIRE_NOEXCEPT;
/* A step of `visits` uses of a layer's experts: which layer, and whether it leaves gradients (a
 * backward pass). The chunks' weights are final when `stream` has come to this point. Then for each
 * visit, each on the stream that does the work or waits for it: BeginTokens, all-to-all to the
 * experts, EndTokens; BeginExperts, GEMMs, EndExperts; BeginTokens, all-to-all back, EndTokens. */
REWIRE_API rewireResult_t rewireFsepBegin(rewireFsep_t fsep, uint32_t visits,
                                          const uint32_t* layers, const uint32_t* leave_gradients,
                                          void* stream) REWIRE_NOEXCEPT;
REWIRE_API rewireResult_t rewireFsepBeginTokens(rewireFsep_t fsep, void* stream) REWIRE_NOEXCEPT;
REWIRE_API rewireResult_t rewireFsepEndTokens(rewireFsep_t fsep, void* stream) REWIRE_NOEXCEPT;
/* Slot s's weights are at element s * ranks * elements, and so are its gradients (NULL in a visit
 * that leaves none): write them all, since another visit's are there. Valid in the stream's order
 * until EndExperts. */
REWIRE_API rewireResult_t rewireFsepBeginExperts(rewireFsep_t fsep, void* stream, void** weights,
                                                 void** gradients) REWIRE_NOEXCEPT;
/* Behind the last use of the slots, which may be later than what the tokens back wait for. */
REWIRE_API rewireResult_t rewireFsepEndExperts(rewireFsep_t fsep, void* stream) REWIRE_NOEXCEPT;
/* What comes next on `stream` finds all gradients in the chunks, and may change their weights. */
REWIRE_API rewireResult_t rewireFsepFinish(rewireFsep_t fsep, void* stream) REWIRE_NOEXCEPT;
/* Waits for what was begun. The communicator is the program's, before and after. */
REWIRE_API rewireResult_t rewireFsepClose(rewireFsep_t fsep) REWIRE_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* REWIRE_C_API_H_ */
