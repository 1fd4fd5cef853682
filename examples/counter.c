/* The shortest cooperating program: its whole state is one number. Ends when STOP_FILE exists:
 *   rewire run -n 2 --max 4 -- counter STOP_FILE */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "rewire/rewire.h"

static uint64_t step;

static int Update(void* arg) { /* the optimizer's step */
  (void)arg, ++step;
  return 0;
}

int main(int argc, char** argv) {
  const struct timespec pause = {0, 100 * 1000 * 1000};
  rewireContext_t context = NULL;
  rewireOutcome_t outcome = {.size = sizeof outcome};
  const rewireTensor_t state = {sizeof state,     "step",         1,          8,
                                rewireReplicated, rewireVolatile, rewireHost, &step};
  if (argc != 2 || rewireAttach(NULL, &context) != rewireSuccess) return 2;
  rewireResult_t result = rewireRegisterTensor(context, &state);
  while (result == rewireSuccess && outcome.kind != rewireLeave && access(argv[1], F_OK) != 0) {
    nanosleep(&pause, NULL); /* forward, backward, and the reduction of the gradients */
    result = rewireUpdate(context, Update, NULL, &outcome);
  }
  if (result == rewireSuccess) result = rewireDetach(context);
  printf("%llu steps: %s\n", (unsigned long long)step, rewireResultString(result));
  return result == rewireSuccess ? 0 : 1;
}
