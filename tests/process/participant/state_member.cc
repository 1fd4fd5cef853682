// A program with state and without a GPU, for process tests of the C API. The state of every
// version is known in advance, so that each byte is checked at every update.
//
//   state_member BARRIER_FILE STOP_FILE [in-place]
//
// in-place: its part of the sharded tensor stays in place; otherwise each version has its own
// memory. A Barrier in a shared file replaces a real job's collectives. The program ends a few
// steps after STOP_FILE exists, and exits with 1 on a wrong byte.
//
// STATE_MEMBER_MOVES=1: it also registers a tensor in device memory, which slot 1 reallocates in
// step 5 without notice.
//
// STATE_MEMBER_LOCAL_UPDATES=1: an update ends without the other members. Only the gradients of the
// next step wait for them.
//
// STATE_MEMBER_ASKS=takes-sigterm or ignores-sigterm: a joiner first asks for the unique id of a
// name that no member publishes.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "reconfig/base/cuda_driver.h"
#include "rewire/rewire.h"
#include "tests/process/participant/barrier.h"

namespace {

using rewire::Barrier;
using rewire::Wait;

constexpr uint64_t kWeights = 300001;
constexpr uint64_t kMoments = 700001;
constexpr uint64_t kRunning = 1003;
constexpr uint32_t kPerUpdate = 40503;
constexpr uint64_t kTable = 4096;

struct Program {
  rewireContext_t context = nullptr;
  rewireWorld_t world = {};
  Barrier* barrier = nullptr;
  std::vector<uint32_t> weights = std::vector<uint32_t>(kWeights);
  std::vector<uint32_t> gradients = std::vector<uint32_t>(kWeights);
  std::vector<uint32_t> running = std::vector<uint32_t>(kRunning);
  uint64_t step = 0;
  std::vector<uint32_t> room;  // storage for all versions, if parts stay in place
  uint32_t* moments = nullptr;
  uint64_t begin = 0;
  uint64_t end = 0;
  CUdeviceptr table = 0;  // 0: no tensor
};

[[noreturn]] void Bad(const char* what, uint64_t at, uint64_t step) {
  printf("BAD %s at %llu in step %llu: %s\n", what, static_cast<unsigned long long>(at),
         static_cast<unsigned long long>(step), rewireLastError());
  fflush(stdout);
  _exit(1);
}

uint32_t Value(uint64_t i, uint64_t version) {
  return static_cast<uint32_t>(i * 2654435761u + version * kPerUpdate);
}

void Check(const Program& p, bool with_running) {
  for (uint64_t i = 0; i < kWeights; ++i) {
    if (p.weights[i] != Value(i, p.step)) Bad("weight", i, p.step);
  }
  for (uint64_t i = p.begin; i < p.end; ++i) {
    if (p.moments[i - p.begin] != Value(i + 1, p.step)) Bad("moment", i, p.step);
  }
  for (uint64_t i = 0; with_running && i < kRunning; ++i) {
    if (p.running[i] != Value(i + 2, p.step)) Bad("running statistic", i, p.step);
  }
}

int Update(void* arg) {
  auto* p = static_cast<Program*>(arg);
  for (uint64_t i = 0; i < kWeights; ++i) {
    if (p->gradients[i] != Value(i + 3, p->step)) Bad("gradient", i, p->step);
  }
  Check(*p, false);
  for (uint32_t& w : p->weights) w += kPerUpdate;
  for (uint64_t i = p->begin; i < p->end; ++i) p->moments[i - p->begin] += kPerUpdate;
  ++p->step;
  if (getenv("STATE_MEMBER_LOCAL_UPDATES") != nullptr) return 0;
  // A failed update cannot be undone if the peer was only slow, so the wait lasts until the peer
  // must be lost.
  return Wait(p->world, p->barrier->updated, p->step, 50000) ? 0 : 1;
}

void* Allocate(void*, const char*, uint64_t bytes) { return malloc(bytes); }
void Adopt(void* arg, const char*, void* data, uint64_t begin, uint64_t end) {
  auto* p = static_cast<Program*>(arg);
  if (p->room.empty()) free(p->moments);
  p->moments = static_cast<uint32_t*>(data);
  p->begin = begin;
  p->end = end;
}
void Discard(void* arg, const char*, void* data) {
  if (static_cast<Program*>(arg)->room.empty()) free(data);
}
int InPlace(void* arg, const char*, uint64_t, uint64_t) {
  return static_cast<Program*>(arg)->room.empty() ? 0 : 1;
}
void OnWorld(void* arg, const rewireWorld_t* world) { static_cast<Program*>(arg)->world = *world; }

void Register(Program* p, const char* name, uint64_t elements, uint32_t bytes,
              rewireLayout_t layout, rewireChange_t change, void* data,
              rewireMemory_t memory = rewireHost) {
  rewireTensor_t t = {};
  t.size = sizeof t;
  t.name = name;
  t.elements = elements;
  t.element_bytes = bytes;
  t.layout = layout;
  t.change = change;
  t.memory = memory;
  t.data = data;
  if (rewireRegisterTensor(p->context, &t) != rewireSuccess) Bad(name, 0, 0);
}

const rewire::CudaDriver& Driver() {
  std::string error;
  const rewire::CudaDriver* const driver = rewire::CudaDriver::Get(&error);
  if (driver == nullptr) Bad(error.c_str(), 0, 0);
  return *driver;
}

void MakeTable(Program* p) {
  CUcontext context = nullptr;
  if (Driver().Init(0) != CUDA_SUCCESS ||
      Driver().DevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      Driver().CtxSetCurrent(context) != CUDA_SUCCESS ||
      Driver().MemAlloc(&p->table, kTable) != CUDA_SUCCESS) {
    Bad("table", 0, 0);
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
  void* const data = reinterpret_cast<void*>(p->table);
  Register(p, "table", kTable, 1, rewireReplicated, rewireConstant, data, rewireDevice);
}

void MoveTable(Program* p) {
  if (Driver().MemFree(p->table) != CUDA_SUCCESS ||
      Driver().MemAlloc(&p->table, kTable) != CUDA_SUCCESS) {
    Bad("table", 0, p->step);
  }
  printf("moved\n");
  fflush(stdout);
}

void SetUp(Program* p) {
  rewireAttachOptions_t options = {sizeof options, 1, 0};
  if (rewireAttach(&options, &p->context) != rewireSuccess) Bad("attach", 0, 0);
  p->world.size = sizeof p->world;
  if (rewireWorld(p->context, &p->world) != rewireSuccess) Bad("world", 0, 0);
  if (const char* asks = getenv("STATE_MEMBER_ASKS"); p->world.joining != 0 && asks != nullptr) {
    if (strcmp(asks, "ignores-sigterm") == 0) signal(SIGTERM, SIG_IGN);
    printf("asks\n");
    fflush(stdout);
    char id[128];
    if (rewireUniqueId(p->context, "nobody's", id) != rewireSuccess) Bad("unique id", 0, 0);
  }
  rewireShard(kMoments, p->world.slots, p->world.slot, &p->begin, &p->end);
  p->moments = p->room.empty() ? static_cast<uint32_t*>(calloc(p->end - p->begin + 1, 4))
                               : p->room.data() + p->begin;
  if (p->world.joining == 0) {
    for (uint64_t i = 0; i < kWeights; ++i) p->weights[i] = Value(i, 0);
    for (uint64_t i = p->begin; i < p->end; ++i) p->moments[i - p->begin] = Value(i + 1, 0);
    for (uint64_t i = 0; i < kRunning; ++i) p->running[i] = Value(i + 2, 0);
  }
  const rewireParallel_t parallel = {sizeof parallel, 0, 1};
  const rewireCallbacks_t callbacks = {sizeof callbacks, p,       Allocate, Adopt,
                                       Discard,          OnWorld, InPlace,  nullptr};
  if (rewireSetParallel(p->context, &parallel, &callbacks) != rewireSuccess) Bad("parallel", 0, 0);
  Register(p, "weights", kWeights, 4, rewireReplicated, rewireConstant, p->weights.data());
  Register(p, "moments", kMoments, 4, rewireSharded, rewireConstant, p->moments);
  Register(p, "running", kRunning, 4, rewireReplicated, rewireVolatile, p->running.data());
  Register(p, "step", 1, 8, rewireReplicated, rewireVolatile, &p->step);
  Register(p, "gradients", kWeights, 4, rewireReplicated, rewireTransient, p->gradients.data());
  if (getenv("STATE_MEMBER_MOVES") != nullptr) MakeTable(p);
}

void Report(const Program& p, const rewireOutcome_t& outcome) {
  static const char* const kKinds[] = {"continue", "changed", "repeat", "leave"};
  printf("%s epoch %llu slot %u/%u step %llu pause %.3f ms in %llu out %llu\n",
         kKinds[outcome.kind], static_cast<unsigned long long>(outcome.world.epoch), p.world.slot,
         p.world.slots, static_cast<unsigned long long>(p.step),
         static_cast<double>(outcome.pause_ns) / 1e6,
         static_cast<unsigned long long>(outcome.bytes_in),
         static_cast<unsigned long long>(outcome.bytes_out));
  fflush(stdout);
}

// The step failed: returns to a version that all survivors can restore.
void Recover(Program* p) {
  rewireOutcome_t outcome = {};
  outcome.size = sizeof outcome;
  const rewireResult_t result = rewireRecover(p->context, &outcome);
  if (result == rewireUnavailable) return;  // a slow peer is not lost
  if (std::strstr(rewireLastError(), "counts as lost") != nullptr) _exit(3);
  if (result != rewireSuccess) Bad("recover", 0, p->step);
  Report(*p, outcome);
  Check(*p, true);
}

int Train(Program* p, const char* stop_file) {
  bool first = true;
  for (;;) {
    const bool joiner = first && p->world.joining != 0;
    first = false;
    if (const char* fails = getenv("STATE_MEMBER_FAILS");
        fails != nullptr && p->world.slot == 1 && p->world.slots == 3 && p->step >= 20) {
      // Simulates an uncaught exception of a program that detaches in an exit handler.
      static rewireContext_t context = p->context;
      atexit([] { rewireDetach(context); });
      exit(atoi(fails));
    }
    if (p->table != 0 && p->world.slot == 1 && p->step == 5) MoveTable(p);
    if (!joiner) {
      const uint64_t stop_at = p->barrier->stop_at.load();
      if (stop_at != 0 && p->step >= stop_at) return 0;
      if (stop_at == 0 && p->world.slot == 0 && access(stop_file, F_OK) == 0) {
        p->barrier->stop_at.store(p->step + 10);
      }
      // The forward and backward pass change the volatile state and compute gradients.
      for (uint64_t i = 0; i < kRunning; ++i) p->running[i] = Value(i + 2, p->step + 1);
      for (uint64_t i = 0; i < kWeights; ++i) p->gradients[i] = Value(i + 3, p->step);
      if (!Wait(p->world, p->barrier->forward, p->step + 1, 2000)) {
        Recover(p);
        continue;
      }
    }
    rewireOutcome_t outcome = {};
    outcome.size = sizeof outcome;
    if (rewireUpdate(p->context, Update, p, &outcome) != rewireSuccess) {
      printf("update failed: %s\n", rewireLastError());
      Recover(p);
      continue;
    }
    if (outcome.kind != rewireContinue) Report(*p, outcome);
    if (outcome.kind == rewireLeave) return 0;
    Check(*p, true);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  Program program;
  program.barrier = Barrier::In(argv[1]);
  if (program.barrier == nullptr) return 2;
  if (argc == 4) program.room.resize(kMoments);
  SetUp(&program);
  printf("ready\n");
  fflush(stdout);
  const int status = Train(&program, argv[2]);
  printf("done step %llu\n", static_cast<unsigned long long>(program.step));
  fflush(stdout);
  rewireDetach(program.context);
  if (program.room.empty()) free(program.moments);
  return status;
}
