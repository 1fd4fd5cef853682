// An NCCL program that uses only rewireCheck() of Rewire: nccl_program KINDS FOLDER.
//
// KINDS has one letter per communicator:
//   b  blocking;
//   p  non-blocking (polled after each operation, as PyTorch does);
//   i  blocking and idle;
//   q  non-blocking and idle;
//   s  blocking with the ranks of the same parity (split from the first communicator);
//   o  blocking and never destroyed.
// Every rank runs verified AllReduces on all of them until FOLDER/stop exists, then destroys the
// communicators, prints "ended N" and returns from main(). A rank with a file FOLDER/leave.RANK
// does so at once, and leaves the others. The ranks of the first communicator that is not idle end
// together. After an error a rank prints "lost after N: REASON" and exits with 3. If a
// synchronisation gives wrong data and rewireCheck() has not reported it, the rank prints "WRONG"
// and exits with 4. KINDS=create: creates and destroys a communicator again and again.
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "rewire/rewire.h"
#include "rewire_nccl_api.h"

namespace {

constexpr size_t kElements = 1000;

// A single write, so that the lines of the ranks do not mix.
void Say(const std::string& line) {
  const std::string text = line + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(5);
}

[[noreturn]] void End(int status, const std::string& line) {
  Say(line);
  _exit(status);
}

uint64_t operations = 0;

// Calls the check of the library that the preloaded file has opened; nullptr: there is none.
rewireResult_t Check() {
  using Function = rewireResult_t (*)();
  static const auto check = [] {
    const char* path = getenv("NCCL_PROGRAM_LIBRARY");
    void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
    return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, "rewireCheck"));
  }();
  return check == nullptr ? rewireSuccess : check();
}

void Must(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  End(3, "lost after " + std::to_string(operations) + ": " + what + " gave " +
             std::to_string(static_cast<int>(result)) + ": " + ncclGetLastError(nullptr));
}

// The driver's functions by their documented names.
template <typename... Arguments>
int Cuda(const char* name, Arguments... arguments) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto* function =
      driver == nullptr ? nullptr : reinterpret_cast<int (*)(Arguments...)>(dlsym(driver, name));
  return function == nullptr ? -1 : function(arguments...);
}
void MustCuda(int result, const char* what) {
  if (result != 0) End(5, std::string(what) + " gave " + std::to_string(result));
}

void Settle(ncclComm_t comm, const char* what) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    Must(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
    if (state == ncclInProgress) sched_yield();
  }
  Must(state, what);
}

// Rank 0 may be lost, or have ended because of a loss. Nothing tells a rank of it that waits for an
// id and has no communicator.
void WriteProcessOfRankZero(const std::string& folder) {
  std::ofstream(folder + "/process.new") << getpid();
  if (rename((folder + "/process.new").c_str(), (folder + "/process").c_str()) != 0) {
    End(5, "no file of the process");
  }
}
bool RankZeroEnded(const std::string& folder) {
  pid_t process = 0;
  return std::ifstream(folder + "/process") >> process && kill(process, 0) != 0;
}

ncclUniqueId IdOf(const std::string& folder, const std::string& name, int rank) {
  const std::string path = folder + "/" + name;
  ncclUniqueId id;
  if (rank == 0) {
    Must(ncclGetUniqueId(&id), "ncclGetUniqueId");
    FILE* file = fopen((path + ".new").c_str(), "w");
    if (file == nullptr || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 ||
        rename((path + ".new").c_str(), path.c_str()) != 0) {
      End(5, "no id");
    }
    return id;
  }
  for (int i = 0; i < 60000; ++i) {
    if (FILE* file = fopen(path.c_str(), "r")) {
      const bool whole = fread(&id, sizeof id, 1, file) == 1;
      fclose(file);
      if (whole) return id;
    }
    if (RankZeroEnded(folder)) {
      End(3, "lost after " + std::to_string(operations) + ": rank 0 has ended");
    }
    usleep(1000);
  }
  End(5, "no id");
}

bool IsNonBlocking(char kind) { return kind == 'p' || kind == 'q'; }
bool IsIdle(char kind) { return kind == 'i' || kind == 'q'; }

struct Communicator {
  char kind = 'b';
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  uint64_t data = 0;
  int ranks = 0;
  int rank = 0;
};

ncclComm_t Create(char kind, const std::string& folder, const std::string& name, int ranks,
                  int rank) {
  const ncclUniqueId id = IdOf(folder, name, rank);
  ncclComm_t comm = nullptr;
  if (IsNonBlocking(kind)) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Must(ncclCommInitRankConfig(&comm, ranks, id, rank, &config), "ncclCommInitRankConfig");
    Settle(comm, "the creation");
  } else {
    Must(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");
  }
  return comm;
}

// Sums rank-dependent values over the ranks, in place. Returns false if the result is wrong.
bool Reduce(Communicator* c, float extra, float* got) {
  std::vector<float> values(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>((i + operations) % 97 + static_cast<size_t>(c->rank));
  }
  values[0] = extra;
  const size_t bytes = kElements * sizeof(float);
  MustCuda(Cuda("cuMemcpyHtoD_v2", c->data, static_cast<const void*>(values.data()), bytes),
           "copy");
  auto* const data = reinterpret_cast<void*>(c->data);
  Must(ncclAllReduce(data, data, kElements, ncclFloat, ncclSum, c->comm, c->stream),
       "ncclAllReduce");
  if (IsNonBlocking(c->kind)) Settle(c->comm, "the launch");
  MustCuda(Cuda("cuStreamSynchronize", c->stream), "cuStreamSynchronize");
  MustCuda(Cuda("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), c->data, bytes), "copy");
  *got = values[0];
  for (size_t i = 1; i < kElements; ++i) {
    const auto sum = static_cast<float>(static_cast<size_t>(c->ranks) * ((i + operations) % 97) +
                                        static_cast<size_t>(c->ranks * (c->ranks - 1) / 2));
    if (values[i] != sum) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const own_rank = getenv("RANK");
  const char* const world_size = getenv("WORLD_SIZE");
  const char* const local_rank = getenv("LOCAL_RANK");
  if (argc != 3 || own_rank == nullptr || world_size == nullptr) return 2;
  const std::string kinds = argv[1];
  const std::string folder = argv[2];
  const int rank = atoi(own_rank);
  const int ranks = atoi(world_size);
  const int device = local_rank != nullptr ? atoi(local_rank) : rank;
  int devices = 1;
  void* context = nullptr;
  MustCuda(Cuda("cuInit", 0U), "cuInit");
  MustCuda(Cuda("cuDeviceGetCount", &devices), "cuDeviceGetCount");
  MustCuda(Cuda("cuDevicePrimaryCtxRetain", &context, device % devices), "context");
  MustCuda(Cuda("cuCtxSetCurrent", context), "context");
  if (rank == 0) WriteProcessOfRankZero(folder);
  if (kinds == "create") {
    for (;; ++operations) {
      const std::string name = "id" + std::to_string(operations);
      Must(ncclCommDestroy(Create('b', folder, name, ranks, rank)), "ncclCommDestroy");
      if (operations == 0) Say("running");
    }
  }
  std::vector<Communicator> all(kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) {
    Communicator& c = all[i];
    c.kind = kinds[i];
    c.ranks = ranks;
    c.rank = rank;
    if (c.kind == 's') {
      Must(ncclCommSplit(all[0].comm, rank % 2, rank, &c.comm, nullptr), "ncclCommSplit");
      c.ranks = (ranks + 1 - rank % 2) / 2;
      c.rank = rank / 2;
    } else {
      c.comm = Create(c.kind, folder, "id" + std::to_string(i), ranks, rank);
    }
    MustCuda(Cuda("cuStreamCreate", &c.stream, 1U), "cuStreamCreate");
    MustCuda(Cuda("cuMemAlloc_v2", &c.data, kElements * sizeof(float)), "cuMemAlloc");
  }
  const size_t first_used =
      static_cast<size_t>(std::find_if_not(kinds.begin(), kinds.end(), IsIdle) - kinds.begin());
  const std::string leave = folder + "/leave." + std::to_string(rank);
  bool stop = false;
  while (!stop) {
    for (Communicator& c : all) {
      if (IsIdle(c.kind) && operations > 0) continue;
      if (access(leave.c_str(), F_OK) == 0) return 0;
      const bool decides = &c == &all[first_used];
      const bool asks = decides && access((folder + "/stop").c_str(), F_OK) == 0;
      float asked = 0;
      if (!Reduce(&c, asks ? 1.0F : 0.0F, &asked)) {
        // Aborted kernels end with wrong data: the check must report the abort.
        if (Check() != rewireSuccess)
          End(3, "lost after " + std::to_string(operations) + ": checked");
        End(4, "WRONG after " + std::to_string(operations));
      }
      if (decides) stop = asked > 0;
    }
    if (++operations == 1) Say("running");
  }
  for (size_t i = all.size(); i-- > 0;) {
    if (all[i].kind == 'o') continue;
    Must(ncclCommDestroy(all[i].comm), "ncclCommDestroy");
  }
  Say("ended " + std::to_string(operations));
  return 0;
}
