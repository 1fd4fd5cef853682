/* A cooperating program in C99 that knows only the installed tree. */
#include <rewire/rewire.h>
#include <rewire/rewire_moe.h>
#include <rewire/rewire_version.h>
#include <stdio.h>
#include <string.h>

static int update(void* arg) {
  ++*(int*)arg;
  return 0;
}

int main(void) {
  rewireContext_t context = NULL;
  rewireWorld_t world = {0};
  rewireOutcome_t outcome = {0};
  int updates = 0;
  world.size = sizeof world;
  outcome.size = sizeof outcome;
  if (rewireCountsClose(NULL) != rewireInvalidArgument) return 2;
  if (strcmp(rewireMoeLastError(), "rewireCountsClose: counts is NULL") != 0) return 3;
  if (rewireAttach(NULL, &context) != rewireSuccess ||
      rewireWorld(context, &world) != rewireSuccess ||
      rewireUpdate(context, update, &updates, &outcome) != rewireSuccess ||
      rewireDetach(context) != rewireSuccess) {
    printf("%s\n", rewireLastError());
    return 1;
  }
  printf("slot %u of %u, %d update\n", (unsigned)world.slot, (unsigned)world.slots, updates);
  return 0;
}
