// A program that cancels a thread inside an NCCL call: cancelled LIBRARY FUNCTION CALL. LIBRARY is
// the do-nothing NCCL that the shim uses. In it the thread waits inside FUNCTION (the start of a
// name without prefix) until it is cancelled. CALL is the program's call. Afterwards the program
// uses and destroys the same communicator.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/fakes/noop_nccl/noop_nccl.h"

namespace {

sem_t inside;
std::string blocked;
std::string call;
ncclComm_t comm = nullptr;
pthread_t canceller;

void WaitInside(const char* name) {
  if (strncmp(name, blocked.c_str(), blocked.size()) != 0 ||
      pthread_equal(pthread_self(), canceller) != 0)
    return;
  sem_post(&inside);
  for (;;) pause();
}

ncclResult_t Reduce(ncclComm_t on) {
  return ncclAllReduce(nullptr, nullptr, 1, ncclFloat, ncclSum, on, nullptr);
}

void* Run(void* /*unused*/) {
  ncclUniqueId id{};
  ncclComm_t made = nullptr;
  void* handle = nullptr;
  ncclResult_t error = ncclSuccess;
  if (call == "reduce") (void)Reduce(comm);
  if (call == "group") {
    (void)ncclGroupStart();
    (void)Reduce(comm);
    (void)ncclGroupEnd();
  }
  if (call == "init") (void)ncclCommInitRank(&made, 1, id, 0);
  if (call == "split") (void)ncclCommSplit(comm, 0, 0, &made, nullptr);
  if (call == "register") (void)ncclCommRegister(comm, nullptr, 1, &handle);
  if (call == "error") (void)ncclCommGetAsyncError(comm, &error);
  if (call == "foreign") (void)Reduce(reinterpret_cast<ncclComm_t>(uintptr_t{1}));
  return nullptr;
}

int Fail(const char* what) {
  printf("%s failed\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  canceller = pthread_self();
  sem_init(&inside, 0, 0);
  ncclUniqueId id{};
  if (ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess) return Fail("the creation");
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return Fail("the library");
  auto* control = reinterpret_cast<decltype(&NoopNccl)>(dlsym(library, "NoopNccl"));
  blocked = argv[2];
  call = argv[3];
  control()->on_call = &WaitInside;
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, Run, nullptr) != 0) return Fail("the thread");
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 20;
  if (sem_timedwait(&inside, &until) != 0) return Fail("the wait");
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  printf("cancelled %d\n", result == PTHREAD_CANCELED ? 1 : 0);
  fflush(stdout);
  // No thread is inside the communicator any more, so its memory is given back.
  if (Reduce(comm) != ncclSuccess || ncclCommDestroy(comm) != ncclSuccess) return Fail("the end");
  if (ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess || Reduce(comm) != ncclSuccess ||
      ncclCommDestroy(comm) != ncclSuccess) {
    return Fail("the next communicator");
  }
  printf("used again\n");
  return 0;
}
