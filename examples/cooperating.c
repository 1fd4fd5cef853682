/* A cooperating program with sharded state in host memory. Its world may change in every step. It
 * trains until STOP_FILE exists:
 *
 *   rewire run -n 2 --max 4 -- cooperating STOP_FILE */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "rewire/rewire.h"

enum { kElements = 1000 };

static uint64_t step;       /* the progress: replicated, volatile */
static uint64_t* moments;   /* this slot's part of the optimizer's state: sharded, constant */
static uint64_t begin, end; /* the elements of that part */

static void Need(rewireResult_t result) {
  if (result == rewireSuccess) return;
  fprintf(stderr, "%s: %s\n", rewireResultString(result), rewireLastError());
  exit(1);
}

static void* Allocate(void* arg, const char* tensor, uint64_t bytes) {
  (void)arg, (void)tensor;
  return malloc(bytes);
}
static void Adopt(void* arg, const char* tensor, void* data, uint64_t first, uint64_t last) {
  (void)arg, (void)tensor;
  free(moments);
  moments = data;
  begin = first;
  end = last;
}
static void Discard(void* arg, const char* tensor, void* data) {
  (void)arg, (void)tensor;
  free(data);
}
static void OnWorld(void* arg, const rewireWorld_t* now) { *(rewireWorld_t*)arg = *now; }

/* The optimizer's step: the only place at which constant state changes. */
static int Update(void* arg) {
  (void)arg;
  for (uint64_t i = begin; i < end; ++i) moments[i - begin] += i;
  ++step;
  return 0;
}

int main(int argc, char** argv) {
  static const char* const kinds[] = {"continue", "world changed", "repeat", "leave"};
  const rewireAttachOptions_t options = {sizeof options, 1, 0}; /* SIGTERM is a reclaim notice */
  rewireContext_t context = NULL;
  rewireWorld_t world = {sizeof world, 0, 0, 0, 0, 0};
  rewireOutcome_t outcome = {.size = sizeof outcome};
  const rewireParallel_t parallel = {sizeof parallel, 0, 1}; /* data parallel, ZeRO-1 */
  const rewireCallbacks_t callbacks = {sizeof callbacks, &world,  Allocate, Adopt,
                                       Discard,          OnWorld, NULL,     NULL};
  if (argc != 2) return 2;

  Need(rewireAttach(&options, &context));
  Need(rewireWorld(context, &world));
  rewireShard(kElements, world.slots, world.slot, &begin, &end);
  moments = calloc(end - begin + 1, sizeof *moments);
  const rewireTensor_t tensors[] = {
      {sizeof *tensors, "step", 1, 8, rewireReplicated, rewireVolatile, rewireHost, &step},
      {sizeof *tensors, "moments", kElements, 8, rewireSharded, rewireConstant, rewireHost,
       moments},
  };
  Need(rewireSetParallel(context, &parallel, &callbacks));
  for (int i = 0; i < 2; ++i) Need(rewireRegisterTensor(context, &tensors[i]));

  while (outcome.kind != rewireLeave && access(argv[1], F_OK) != 0) {
    /* A joiner enters at its first update. Its forward and backward pass come after that. */
    const struct timespec pass = {0, world.joining ? 0 : 100 * 1000 * 1000};
    /* Forward, backward and the reduction of gradients, which keeps the members in the same step.
     * Here nothing does: after a stall the members are apart, and a death may end the job. */
    nanosleep(&pass, NULL);
    Need(rewireUpdate(context, Update, NULL, &outcome));
    printf("step %llu: %s, slot %u of %u\n", (unsigned long long)step, kinds[outcome.kind],
           (unsigned)world.slot, (unsigned)world.slots);
    fflush(stdout);
    for (uint64_t i = begin; i < end && outcome.kind != rewireLeave; ++i) {
      if (moments[i - begin] != i * step) return 3; /* the state is not that of this step */
    }
  }
  Need(rewireDetach(context));
  free(moments);
  return 0;
}
