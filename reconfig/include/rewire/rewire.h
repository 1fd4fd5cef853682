/* Rewire's public C interface, for a training job whose world changes while the job runs.
 *
 * A cooperating job attaches and registers the layout of its state. The job puts everything that
 * changes weights or optimizer state (unscale, clip, optimizer step, schedule) into one function,
 * and passes the function to rewireUpdate() once per step. Between two updates the state is
 * constant, so that Rewire can move it. The job's own collectives keep its members in the same
 * step. A loss relies on that: Rewire keeps the state of the last three steps, and members may be
 * one update apart; survivors that are further apart have no state in common. Without an agent
 * (REWIRE_SOCKET unset) the world never changes, and only rewireUniqueId() and rewireRecover()
 * fail.
 *
 * C99. Every struct begins with its size, which the caller sets: later versions add members at the
 * end. A context is owned by the training thread unless a function says otherwise. No call but
 * rewireAttach() waits without a limit. rewireLastError() has the reason of a failure: the
 * variable, value and range. A request to cancel the calling thread (pthread_cancel) waits until
 * the call has returned. */
#ifndef REWIRE_REWIRE_H_
#define REWIRE_REWIRE_H_

#include <stddef.h>
#include <stdint.h>

#include "rewire/rewire_result.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rewireContext* rewireContext_t;

/* Returns why this thread's last failed call of this header failed. Thread-safe. Valid until the
 * next call on this thread. */
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
  uint32_t reserved; /* 0 */
} rewireAttachOptions_t;

/* Connects to the node's agent and waits, without a limit, until all initial members have attached.
 * Without an agent the context's world comes from RANK and WORLD_SIZE. options may be NULL. Fails
 * for a wrong REWIRE_* value, when the agent does not answer within 10 s, and when an initial
 * member ends before it attaches. A second call gives another context of the same member. The
 * program chooses its device by LOCAL_RANK: a joiner's RANK may be that of another member. */
REWIRE_API rewireResult_t rewireAttach(const rewireAttachOptions_t* options,
                                       rewireContext_t* context) REWIRE_NOEXCEPT;
/* Leaves the job. A member that detaches while in a world counts as finished, not as lost. Under
 * an agent the call ends every context of the process. Later calls with such a context fail with
 * rewireInvalidUsage; only its own rewireDetach() still succeeds. Fails with rewireInvalidUsage
 * inside the update function and inside a callback, and then has no effect. In a forked child of a
 * member the call succeeds and affects only the child's copy of the context. */
REWIRE_API rewireResult_t rewireDetach(rewireContext_t context) REWIRE_NOEXCEPT;
/* Gets the world that this member is in; for a joining member, the world that it will be in. */
REWIRE_API rewireResult_t rewireWorld(rewireContext_t context,
                                      rewireWorld_t* world) REWIRE_NOEXCEPT;
/* Gets 128 bytes for ncclCommInitRank: the same for each member that gives the same name, also for
 * a later joiner. Rewire edits the communicator made with this id when the world changes; the
 * handle stays. A joiner makes as many communicators as the other members have before its first
 * rewireUpdate(): ncclCommInitRank returns at once, and operations are refused until that update.
 * A call that needs the built communicator (ncclCommCuDevice, registrations) waits for it. Without
 * an agent fails with rewireUnavailable: share an id as without Rewire. rewireUnavailable also: a
 * member was lost while this one waited for the id. */
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

/* Gives this member a reclaim notice: Rewire drains the member within `within_ms` milliseconds, and
 * the outcome of a later rewireUpdate() is rewireLeave. For a program that hears of a reclaim
 * otherwise than by SIGTERM (rewireAttachOptions_t), such as from its cloud's metadata. When every
 * member has a notice, the job ends. Returns at once: rewireSuccess says that the notice is on its
 * way to the agent. rewireInvalidArgument: within_ms is 0. rewireUnavailable: this process is in no
 * world, because there is no agent, or it is joining or has left. Thread-safe; needs no context. */
REWIRE_API rewireResult_t rewireReclaim(uint32_t within_ms) REWIRE_NOEXCEPT;

/* Says that the CUDA graphs into which this process has captured NCCL operations are destroyed, and
 * that none of their launches runs any more. A captured operation pins its communicator: the graph
 * holds addresses of one generation, so `rewire status` lists the communicator and no change that
 * needs it begins. After this call it may be rebuilt. Capture again after the change: a new capture
 * pins again. A graph that is launched although it was declared destroyed may use freed memory.
 * Thread-safe; needs no context and no agent. Never fails. */
REWIRE_API rewireResult_t rewireGraphsReleased(void) REWIRE_NOEXCEPT;

/* ---- state ------------------------------------------------------------------------------------
 */

typedef enum {
  rewireReplicated = 0, /* every slot holds all elements */
  rewireSharded = 1,    /* slot s of n holds elements rewireShard(elements, n, s): ZeRO's division.
                           Needs zero_stage 1 */
  rewireByLayout = 2    /* the layout callback says what each slot holds: tensor, pipeline, expert
                           and data parallelism, ZeRO 0 to 3. Needs that callback */
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
  size_t size;            /* sizeof(rewireTensor_t) */
  const char* name;       /* unique; the same on every member; UTF-8 of 1 to 1024 bytes */
  uint64_t elements;      /* of the whole logical tensor; 1 to 2^40, so leave empty tensors out.
                             rewireByLayout: of this slot's memory, with its padding; 0 where the
                             slot has no part */
  uint32_t element_bytes; /* 1 to 2^20 */
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
 * calls allocate, in_place and layout while training continues. For device memory it makes the CUDA
 * context current that was current when the tensor was registered. A program should detach before
 * it ends. For a program that does not, rewireAttach() and the first rewireUpdate() register an
 * exit handler: once it runs, that thread begins no callback, and a running one is waited for, for
 * at most 5 s. Static objects made before the first rewireUpdate() are destroyed after that, so
 * callbacks may use no static object that is made later. */
typedef struct {
  size_t size; /* sizeof(rewireCallbacks_t) */
  void* arg;
  /* Allocates memory, of the tensor's kind, for this member's new part of a sharded tensor. NULL:
   * no room; then the change is refused and the old world continues. */
  void* (*allocate)(void* arg, const char* tensor, uint64_t bytes);
  /* Adopts a committed change: `data` (from allocate or in place, filled) replaces the old part.
   * The program may free the old part's memory, except for memory of the new part. Called before
   * on_world, for each sharded tensor whose part differs in the new world. A part that stays the
   * same needs neither allocate nor adopt. An empty new part has data NULL and no allocate. With
   * rewireByLayout, begin is 0, and end is the number of elements of the slot's memory. */
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
   * new part gets memory from allocate. The old part must not change until adopt. Not called for
   * rewireByLayout. */
  int (*in_place)(void* arg, const char* tensor, uint64_t begin, uint64_t end);
  /* Returns how all rewireByLayout tensors are divided over a world of `slots` slots, as JSON:
   * docs/layouts.md has the fields. The text must be the same on every member and at each call with
   * this number, and stay until the next call. NULL: the program cannot train with this number;
   * then the change is refused, and after a loss the job ends. The training thread calls it in the
   * first rewireUpdate(), and threads of Rewire's in changes, one at a time. The callback may be
   * NULL. */
  const char* (*layout)(void* arg, uint32_t slots);
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
 * their first rewireUpdate(), also tensors of which this slot has no part. */
REWIRE_API rewireResult_t rewireRegisterTensor(rewireContext_t context,
                                               const rewireTensor_t* tensor) REWIRE_NOEXCEPT;

/* ---- the parts and groups of a layout ---------------------------------------------------------
 */

enum { rewireMaxDims = 8 };

/* The memory of a slot for a tensor under a layout. */
typedef struct {
  size_t size;                   /* sizeof(rewirePart_t) */
  uint64_t elements;             /* of the memory, with padding; 0: the slot has no part */
  uint64_t shape[rewireMaxDims]; /* of the memory, row-major; elements alone where ZeRO divides the
                                    tensor, and where the slot is spare or on another stage */
  uint32_t dims;                 /* of shape */
  uint32_t tensor_dims;          /* of the whole tensor, and of pieces */
  uint32_t pieces;               /* the number of pieces; they share no element */
  uint32_t reserved;
} rewirePart_t;

/* Elements of the whole tensor in a slot's memory. The element with the indices x, for which
 * begin[d] <= x[d] < end[d], is at offset + sum of (x[d] - begin[d]) * strides[d], in elements. */
typedef struct {
  uint64_t begin[rewireMaxDims];
  uint64_t end[rewireMaxDims];
  uint64_t strides[rewireMaxDims];
  uint64_t offset;
} rewirePiece_t;

/* Computes which elements of a tensor a slot has under a layout, and where. layout: a text as the
 * layout callback returns it. Fills the first `capacity` of part->pieces pieces; pieces may be NULL
 * if capacity is 0. Fails with rewireInvalidArgument for an error in the layout, an unknown tensor,
 * and a slot that the layout does not have. The thread's last layout is kept, so calls for other
 * tensors and slots do not parse the text again. Thread-safe; needs no context and no agent. */
REWIRE_API rewireResult_t rewireLayoutPart(const char* layout, const char* tensor, uint32_t slot,
                                           rewirePart_t* part, rewirePiece_t* pieces,
                                           uint32_t capacity) REWIRE_NOEXCEPT;

/* The group of a slot along axes of a layout. */
typedef struct {
  size_t size;    /* sizeof(rewireGroup_t) */
  uint32_t ranks; /* the number of slots in the group */
  uint32_t rank;  /* the slot's number in the group, from 0 */
} rewireGroup_t;

/* Computes the slots that have the slot's coordinates on all axes but the given ones, in ascending
 * order. layout: a text as the layout callback returns it. axes: names joined by "-", such as "tp",
 * "dp-cp" or "etp-ep"; docs/layouts.md has them. A spare slot is alone in its group. Fills the
 * first `capacity` of group->ranks slots; slots may be NULL if capacity is 0. Fails with
 * rewireInvalidArgument for an error in the layout, axes that do not exist or do not go together,
 * and a slot that the layout does not have. The thread's last layout is kept, also for
 * rewireLayoutPart(). Thread-safe; needs no context and no agent. */
REWIRE_API rewireResult_t rewireLayoutGroup(const char* layout, const char* axes, uint32_t slot,
                                            rewireGroup_t* group, uint32_t* slots,
                                            uint32_t capacity) REWIRE_NOEXCEPT;

/* Returns the id of a communicator over this slot's group (see rewireLayoutGroup()) in the present
 * world, for ncclCommInitRank() with group->ranks and group->rank. Every member calls with the same
 * name and axes, and makes the communicator before its next rewireUpdate(). After a change of
 * members the communicator spans the slot's group in the new world, whose ranks and number
 * ncclCommCount() and ncclCommUserRank() return. Another communicator, also along the same axes,
 * needs another name (1 to 128 bytes). A communicator that was destroyed may be made again by all
 * members, with the same name. Call after rewireSetParallel(). Fails as rewireUniqueId() and
 * rewireLayoutGroup() do. Blocks until the group's first member has called. */
REWIRE_API rewireResult_t rewireGroupId(rewireContext_t context, const char* name, const char* axes,
                                        rewireGroup_t* group, void* id128) REWIRE_NOEXCEPT;

/* ---- the update boundary ----------------------------------------------------------------------
 */

typedef enum {
  rewireContinue = 0,     /* the update was applied; the world has not changed */
  rewireWorldChanged = 1, /* the update was applied in the new world; on_world has been called */
  rewireRepeat = 2, /* a member was lost and there is a new world. The update of this call was not
                       applied here. The state is the newest that the survivors have in common:
                       after this step, if others had finished its update, before the step, or one
                       step earlier (two, if the updates use no collective operation). Progress
                       tensors say which step comes next */
  rewireLeave = 3   /* this member is out of the world: exit with status 0. The update was not
                       applied by this member */
} rewireOutcomeKind_t;

typedef struct {
  size_t size; /* sizeof(rewireOutcome_t) */
  rewireOutcomeKind_t kind;
  uint32_t reserved;
  rewireWorld_t world; /* from now on; always set */
  uint64_t pause_ns;   /* time that the change took inside this call, without the update function */
  uint64_t bytes_in;   /* state that this member received for this change */
  uint64_t bytes_out;
} rewireOutcome_t;

/* Applies the update and returns 0 for success. Its device work must be complete when the function
 * returns (cudaStreamSynchronize()): from then on Rewire copies the state on streams of its own,
 * and cannot see work that is still queued. Some copies are compared with the state later. After a
 * difference Rewire warns, and copies before each update instead. The function may use the
 * communicators (of the new world, when the world changed). The function must not call Rewire:
 * rewireUpdate() and rewireRecover() are refused there, and on another thread meanwhile. */
typedef int (*rewireUpdateFn)(void* arg);
/* The update function may return this value: it failed and has not changed any constant state. So
 * this member's state is still that of the step before, and rewireRecover() can keep it. Any other
 * failure needs a copy of the state. Useful where a collective operation comes before the changes,
 * such as the norm of the gradients. */
enum { rewireUnchanged = 0x52570001 };

/* Passes the update boundary. Call once per step, after the last reduction of gradients has been
 * enqueued and waited for. At some update a communicator may switch to another generation, so all
 * members have issued the same operations on each communicator before the same update: no receive
 * is issued before an update for a send after it, and no other thread issues operations meanwhile.
 * outcome may be NULL only in a job that never changes its world. When the update function fails,
 * outcome still says whether the world changed before it. rewireLost: this process is no longer
 * part of the job.
 *
 * Adds less than 200 ns when nothing is pending and no copies are made. Volatile state, and state
 * that one member has alone, is copied after each update, and the next update waits for the copies.
 * Each copy of a device tensor waits for the device at least once: a few large tensors cost less
 * than many small ones. */
REWIRE_API rewireResult_t rewireUpdate(rewireContext_t context, rewireUpdateFn update, void* arg,
                                       rewireOutcome_t* outcome) REWIRE_NOEXCEPT;
/* Waits until the world is whole again. Call when forward or backward failed because an NCCL call,
 * or a wait for one, failed. Waits at most REWIRE_SILENCE_MS + REWIRE_BUILD_MS +
 * 11 * REWIRE_BOUNDARY_MS; time in which this process did not run does not count.
 * rewireUnavailable: no loss is known after REWIRE_SILENCE_MS + REWIRE_BOUNDARY_MS, so that the
 * error has another cause. rewireLost: this process is no longer part of the job, for example
 * because no survivor has some state. */
REWIRE_API rewireResult_t rewireRecover(rewireContext_t context,
                                        rewireOutcome_t* outcome) REWIRE_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* REWIRE_REWIRE_H_ */
