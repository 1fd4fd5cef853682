// A member that calls the C interface at wrong moments, under an agent. It prints one line per
// call, with the result and the reason.
//
//   wrong_member attach     Only attaches.
//   wrong_member calls      Makes every call that needs an agent.
//   wrong_member order      Registers its tensors in another order than its neighbour.
//   wrong_member extra      Registers a tensor more than its neighbour, in slot 1.
//   wrong_member cancelled  Attaches on a thread that is cancelled before the call.
//   wrong_member returns    Returns from main() without rewireDetach(). Its earlier exit handler
//                           waits for the file WRONG_MEMBER_GO.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "rewire/rewire.h"

namespace {

void Say(const char* what, rewireResult_t result) {
  printf("%s: %s: %s\n", what, rewireResultString(result),
         result == rewireSuccess ? "" : rewireLastError());
  fflush(stdout);
}

int Update(void*) { return 0; }

void* UpdateElsewhere(void* context) {
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  Say("update elsewhere",
      rewireUpdate(static_cast<rewireContext_t>(context), Update, nullptr, &outcome));
  return nullptr;
}

// Makes the calls that are not allowed inside the update function.
int UpdateInside(void* arg) {
  const auto context = static_cast<rewireContext_t>(arg);
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  Say("update inside", rewireUpdate(context, Update, nullptr, &outcome));
  Say("recover inside", rewireRecover(context, &outcome));
  Say("detach inside", rewireDetach(context));
  pthread_t other{};
  if (pthread_create(&other, nullptr, UpdateElsewhere, context) != 0) return 1;
  pthread_join(other, nullptr);
  return 0;
}

rewireTensor_t Tensor(const char* name, rewireMemory_t memory, void* data) {
  return {sizeof(rewireTensor_t), name, 4, 4, rewireReplicated, rewireConstant, memory, data};
}

void Calls(rewireContext_t context) {
  char id[128];
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  uint32_t data[4] = {};
  Say("id without NCCL", rewireUniqueId(context, "world", id));
  const rewireTensor_t device = Tensor("device", rewireDevice, data);
  Say("device without driver", rewireRegisterTensor(context, &device));
  const rewireTensor_t host = Tensor("host", rewireHost, data);
  Say("host", rewireRegisterTensor(context, &host));
  Say("host again", rewireRegisterTensor(context, &host));
  Say("update", rewireUpdate(context, Update, nullptr, &outcome));
  Say("update with calls", rewireUpdate(context, UpdateInside, context, &outcome));
  const rewireTensor_t late = Tensor("late", rewireHost, data);
  Say("late", rewireRegisterTensor(context, &late));
  Say("nothing to recover from", rewireRecover(context, &outcome));
  Say("update after it", rewireUpdate(context, Update, nullptr, &outcome));
  const pid_t child = fork();
  if (child == 0) {
    rewireContext_t own = nullptr;
    Say("child attach", rewireAttach(nullptr, &own));
    Say("child recover", rewireRecover(context, &outcome));
    Say("child update", rewireUpdate(context, Update, nullptr, &outcome));
    const rewireTensor_t tensor = Tensor("child", rewireHost, data);
    Say("child tensor", rewireRegisterTensor(context, &tensor));
    Say("child reclaim", rewireReclaim(1000));
    Say("child graphs", rewireGraphsReleased());
    Say("child detach", rewireDetach(context));
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  Say("update after fork", rewireUpdate(context, Update, nullptr, &outcome));
}

void Extra(rewireContext_t context) {
  uint32_t data[4] = {};
  const rewireTensor_t common = Tensor("common", rewireHost, data);
  const rewireTensor_t other = Tensor("other", rewireHost, data);
  rewireWorld_t world = {};
  world.size = sizeof world;
  Say("world", rewireWorld(context, &world));
  Say("tensor", rewireRegisterTensor(context, &common));
  if (world.slot == 1) Say("tensor", rewireRegisterTensor(context, &other));
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  Say("first update", rewireUpdate(context, Update, nullptr, &outcome));
}

void Order(rewireContext_t context) {
  uint32_t data[4] = {};
  const rewireTensor_t tensors[] = {Tensor("a", rewireHost, data), Tensor("b", rewireHost, data)};
  rewireWorld_t world = {};
  world.size = sizeof world;
  Say("world", rewireWorld(context, &world));
  for (const uint32_t i : {world.slot, 1 - world.slot}) {
    Say("tensor", rewireRegisterTensor(context, &tensors[i]));
  }
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  Say("first update", rewireUpdate(context, Update, nullptr, &outcome));
}

void WaitForFile() {
  printf("exit handler\n");
  fflush(stdout);
  for (int turn = 0; turn < 6000 && access(getenv("WRONG_MEMBER_GO"), F_OK) != 0; ++turn) {
    usleep(10000);
  }
}

void* Allocate(void*, const char*, uint64_t bytes) {
  printf("BAD: allocate of %llu bytes\n", static_cast<unsigned long long>(bytes));
  fflush(stdout);
  return malloc(bytes);
}

// Ends, but for the exit handler, while the job changes.
int Returns() {
  atexit(WaitForFile);
  static rewireContext_t context = nullptr;  // so that it is no leak
  if (rewireAttach(nullptr, &context) != rewireSuccess) return 1;
  rewireParallel_t parallel = {sizeof parallel, 0, 1};
  rewireCallbacks_t callbacks = {};
  callbacks.size = sizeof callbacks;
  callbacks.allocate = Allocate;
  callbacks.adopt = [](void*, const char*, void*, uint64_t, uint64_t) {};
  callbacks.discard = [](void*, const char*, void* data) { free(data); };
  Say("parallel", rewireSetParallel(context, &parallel, &callbacks));
  static uint32_t data[4];
  rewireTensor_t tensor = Tensor("sharded", rewireHost, data);
  tensor.layout = rewireSharded;
  Say("tensor", rewireRegisterTensor(context, &tensor));
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  Say("update", rewireUpdate(context, Update, nullptr, &outcome));
  return 0;
}

void* AttachCancelled(void* result) {
  pthread_cancel(pthread_self());
  rewireContext_t context = nullptr;
  *static_cast<rewireResult_t*>(result) = rewireAttach(nullptr, &context);
  pthread_testcancel();
  return nullptr;
}

int Cancelled() {
  pthread_t thread{};
  void* ended = nullptr;
  rewireResult_t result = rewireSuccess;
  if (pthread_create(&thread, nullptr, AttachCancelled, &result) != 0) return 1;
  pthread_join(thread, &ended);
  printf("attach: %s, cancelled: %d\n", rewireResultString(result),
         ended == PTHREAD_CANCELED ? 1 : 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (strcmp(argv[1], "cancelled") == 0) return Cancelled();
  if (strcmp(argv[1], "returns") == 0) return Returns();
  rewireContext_t context = nullptr;
  const rewireAttachOptions_t options = {sizeof options, 1, 0};
  const rewireResult_t attached = rewireAttach(&options, &context);
  Say("attach", attached);
  if (attached != rewireSuccess) return context == nullptr ? 0 : 1;
  if (strcmp(argv[1], "calls") == 0) Calls(context);
  if (strcmp(argv[1], "order") == 0) Order(context);
  if (strcmp(argv[1], "extra") == 0) Extra(context);
  rewireContext_t second = nullptr;
  Say("second attach", rewireAttach(nullptr, &second));
  Say("detach", rewireDetach(context));
  Say("second detach", rewireDetach(second));
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  Say("update after detach", rewireUpdate(context, Update, nullptr, &outcome));
  Say("detach again", rewireDetach(context));
  Say("attach again", rewireAttach(nullptr, &context));
  return 0;
}
