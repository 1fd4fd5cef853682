/* Rewire's public C interface for mixture-of-experts layers: recordings of a router's counts,
 * experts balanced inside a node, and fully sharded experts.
 *
 * In librewire-moe.so, which needs no librewire.so, no context and no agent. C99. Every struct
 * begins with its size, which the caller sets: later versions add members at the end. A request to
 * cancel the calling thread (pthread_cancel) waits until the call has returned. */
#ifndef REWIRE_MOE_H_
#define REWIRE_MOE_H_

#include <stddef.h>
#include <stdint.h>

#include "rewire/rewire_result.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns why this thread's last failed call of this header failed. Thread-safe. Valid until the
 * next call on this thread. */
REWIRE_API const char* rewireMoeLastError(void) REWIRE_NOEXCEPT;

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

#endif /* REWIRE_MOE_H_ */
