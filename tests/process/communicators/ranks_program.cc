// One process that drives several ranks of its communicators: ranks_program FOLDER MODE. Every
// result is checked.
//
// MODE "group": one thread issues the operations of all ranks in groups, as nccl-tests -g does.
// MODE "turns": one thread issues them rank by rank, after a first group. MODE "threads": one
// thread for each rank, as nccl-tests -t does. MODE "all": as "group", with communicators of
// ncclCommInitAll. MODE "lost": as "group", until a process is lost.
//
// The communicators are the world; columns (split by the place in the process); rows (split by
// process); one used only at a command; one for sends and receives; one that a command ends; and,
// in the modes "group" and "threads", a non-blocking one. Rank 0 follows the files in FOLDER: use-K
// (the idle communicator is used for the K-th time), close-K (the K-th rank of each process
// destroys the last communicator) and stop. Process 1 follows the file kill.
#include <signal.h>

#include <functional>
#include <memory>
#include <thread>

#include "tests/process/communicators/program_process.h"

namespace rewire {
namespace {

constexpr int kHere = 2;  // ranks in each process
constexpr int kUse = 1;
constexpr int kClose = 2;
constexpr int kStop = 3;

constexpr int SumBelow(int n) { return n * (n - 1) / 2; }

// One rank.
struct Part {
  explicit Part(int place) : index(place), number(kHere * rank + place), gpu(number) {}
  const int index;  // place in the process
  const int number;
  const Gpu gpu;
  ncclComm_t world = nullptr;
  ncclComm_t column = nullptr;
  ncclComm_t row = nullptr;
  ncclComm_t idle = nullptr;
  ncclComm_t sends = nullptr;
  ncclComm_t ending = nullptr;
  ncclComm_t polling = nullptr;
};

// The ranks that one thread drives.
class Driver {
 public:
  Driver(const std::string& mode, const std::vector<int>& places) : mode_(mode) {
    for (const int place : places) parts_.push_back(std::make_unique<Part>(place));
  }

  void Run() {
    Make();
    Say("ready");
    for (int step = 0;; ++step) {
      usleep(2000);  // computation time: the next generations' builds also need the CPUs
      const int command = Step(step);
      if (command == kStop) break;
      if (command == kUse) Use();
      if (command == kClose) Close();
    }
    End();
    Say("done");
  }

  // Issues operations until the loss of a process ends them.
  void RunUntilLost() {
    Make();
    Say("ready");
    for (;;) {
      if (rank == 1 && Exists("kill")) raise(SIGKILL);
      ncclResult_t result = ncclGroupStart();
      for (const auto& part : parts_) {
        const ncclResult_t one = ncclAllReduce(part->gpu.send(), part->gpu.receive(), kElements,
                                               ncclFloat, ncclSum, part->world, part->gpu.stream);
        if (result == ncclSuccess) result = one;
      }
      const ncclResult_t ended = ncclGroupEnd();
      if (result == ncclSuccess) result = ended;
      if (result == ncclRemoteError) break;
      Must(static_cast<int>(result), "a group of ncclAllReduce");
      for (const auto& part : parts_) MUST(Cuda("cuStreamSynchronize", part->gpu.stream));
    }
    Together([](Part& part) {
      for (ncclComm_t comm :
           {part.world, part.column, part.row, part.idle, part.sends, part.ending}) {
        MUST(ncclCommAbort(comm));
      }
    });
    Say("lost");
  }

 private:
  using Comm = ncclComm_t Part::*;

  void Say(const std::string& what) const {
    if (parts_.front()->index != 0) return;
    printf("rank %d %s\n", rank, what.c_str());
    fflush(stdout);
  }

  // Makes a call for each rank, in a group if the thread has several.
  void Together(const std::function<void(Part&)>& call, bool group = true) {
    group = group && parts_.size() > 1;
    if (group) MUST(ncclGroupStart());
    for (const auto& part : parts_) {
      part->gpu.Enter();
      call(*part);
    }
    if (group) MUST(ncclGroupEnd());
  }

  void Init(const std::string& name, Comm comm) {
    if (mode_ == "all") {
      std::vector<ncclComm_t> made(kHere);
      MUST(ncclCommInitAll(made.data(), kHere, nullptr));
      for (const auto& part : parts_) (*part).*comm = made[static_cast<size_t>(part->index)];
      return;
    }
    // The threads of a process share its files.
    const ncclUniqueId id = parts_.front()->index == 0 ? Share(name) : Await(name);
    Together(
        [&](Part& part) { MUST(ncclCommInitRank(&(part.*comm), kHere * ranks, id, part.number)); });
  }

  [[nodiscard]] bool Polls() const { return mode_ == "group" || mode_ == "threads"; }

  void InitPolling() {
    const ncclUniqueId id = parts_.front()->index == 0 ? Share("polling") : Await("polling");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Polled([&](Part& part) {
      return ncclCommInitRankConfig(&part.polling, kHere * ranks, id, part.number, &config);
    });
  }

  // Makes a call with the non-blocking communicator for each rank, in a group if the thread has
  // several, and waits until all have ended.
  void Polled(const std::function<ncclResult_t(Part&)>& call) {
    const auto taken = [](ncclResult_t result) {
      if (result != ncclInProgress) Must(static_cast<int>(result), "a non-blocking call");
    };
    const bool group = parts_.size() > 1;
    if (group) MUST(ncclGroupStart());
    for (const auto& part : parts_) {
      part->gpu.Enter();
      taken(call(*part));
    }
    if (group) taken(ncclGroupEnd());
    for (const auto& part : parts_) Settle(part->polling);
  }

  void SumPolled(int step) {
    const int all = kHere * ranks;
    for (const auto& part : parts_) {
      part->gpu.Enter();
      part->gpu.Give(static_cast<float>(part->number + step % 10));
    }
    Polled([](Part& part) {
      return ncclAllReduce(part.gpu.send(), part.gpu.receive(), kElements, ncclFloat, ncclSum,
                           part.polling, part.gpu.stream);
    });
    for (const auto& part : parts_) {
      part->gpu.Enter();
      Expect(part->gpu.Take(), static_cast<float>(SumBelow(all) + all * (step % 10)),
             "the non-blocking one");
    }
  }

  static ncclUniqueId Await(const std::string& name) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!Exists("id-" + name)) {
      if (std::chrono::steady_clock::now() > until) Die("no id of " + name);
      usleep(2000);
    }
    ncclUniqueId id;
    std::ifstream(folder + "/id-" + name, std::ios::binary).read(id.internal, sizeof id.internal);
    return id;
  }

  void Make() {
    Init("world", &Part::world);
    Together([](Part& part) {
      MUST(ncclCommSplit(part.world, part.index, part.number, &part.column, nullptr));
    });
    Together(
        [](Part& part) { MUST(ncclCommSplit(part.world, rank, part.number, &part.row, nullptr)); });
    Init("idle", &Part::idle);
    Init("sends", &Part::sends);
    Init("ending", &Part::ending);
    if (Polls()) InitPolling();
    // Operations by turns need the connections of a first group.
    Sum(&Part::world, 0, true);
    Sum(&Part::column, 0, true);
    Sum(&Part::row, 0, true);
    Sum(&Part::idle, 0, true);
    // Without a send before the rebuild, the communicator counts as idle and soon switches.
    Ring(0);
  }

  // Every rank gives its number and `more`. Returns the sum of the ranks of this process's first
  // part.
  float Sum(Comm comm, float more, bool group) {
    for (const auto& part : parts_) {
      part->gpu.Enter();
      part->gpu.Give(static_cast<float>(part->number) + more);
    }
    Together(
        [&](Part& part) {
          MUST(ncclAllReduce(part.gpu.send(), part.gpu.receive(), kElements, ncclFloat, ncclSum,
                             part.*comm, part.gpu.stream));
        },
        group);
    float first = 0;
    for (const auto& part : parts_) {
      part->gpu.Enter();
      const float sum = part->gpu.Take();
      if (part == parts_.front()) first = sum;
    }
    return first;
  }
  float Sum(Comm comm, float more) { return Sum(comm, more, mode_ != "turns"); }

  // Sends from each rank to the next.
  void Ring(int step) {
    const int all = kHere * ranks;
    for (const auto& part : parts_) {
      part->gpu.Enter();
      part->gpu.Give(static_cast<float>(100 * part->number + step % 50));
    }
    MUST(ncclGroupStart());
    for (const auto& part : parts_) {
      part->gpu.Enter();
      MUST(ncclSend(part->gpu.send(), kElements, ncclFloat, (part->number + 1) % all, part->sends,
                    part->gpu.stream));
      MUST(ncclRecv(part->gpu.receive(), kElements, ncclFloat, (part->number + all - 1) % all,
                    part->sends, part->gpu.stream));
    }
    MUST(ncclGroupEnd());
    for (const auto& part : parts_) {
      part->gpu.Enter();
      const int before = (part->number + all - 1) % all;
      Expect(part->gpu.Take(), static_cast<float>(100 * before + step % 50), "the ring");
    }
  }

  int Step(int step) {
    const int all = kHere * ranks;
    // Rank 0's value tells all ranks the next action.
    int command = 0;
    const Part& first = *parts_.front();
    if (first.number == 0) {
      if (Exists("use-" + std::to_string(used_ + 1))) command = kUse;
      if (Exists("close-" + std::to_string(closed_ + 1))) command = kClose;
      if (Exists("stop")) command = kStop;
    }
    const float mine = static_cast<float>(1000 * command);
    first.gpu.Enter();
    for (const auto& part : parts_) {
      part->gpu.Enter();
      part->gpu.Give(static_cast<float>(part->number) + (part->number == 0 ? mine : 0));
    }
    Together(
        [&](Part& part) {
          MUST(ncclAllReduce(part.gpu.send(), part.gpu.receive(), kElements, ncclFloat, ncclSum,
                             part.world, part.gpu.stream));
        },
        mode_ != "turns");
    for (const auto& part : parts_) {
      part->gpu.Enter();
      const float sum = part->gpu.Take();
      command = static_cast<int>(sum) / 1000;
      Expect(sum, static_cast<float>(SumBelow(all) + 1000 * command), "the world");
    }
    const float more = static_cast<float>(step % 10);
    // A column has the ranks of one place, a row those of one process.
    float column = 0;
    for (int process = 0; process < ranks; ++process) {
      column += static_cast<float>(kHere * process + first.index) + more;
    }
    Expect(Sum(&Part::column, more), column, "a column");
    if (step % 3 == 0) {
      const float row = static_cast<float>(kHere * kHere * rank + SumBelow(kHere));
      Expect(Sum(&Part::row, more), row + kHere * more, "a row");
    }
    if (step % 4 == 0) Ring(step);
    if (step % 5 == 0 && Polls()) SumPolled(step);
    return command;
  }

  void Use() {
    ++used_;
    const int all = kHere * ranks;
    for (int i = 0; i < 10; ++i) {
      Expect(Sum(&Part::idle, static_cast<float>(i)), static_cast<float>(SumBelow(all) + all * i),
             "the idle communicator");
    }
    Say("used it " + std::to_string(used_));
  }

  void Close() {
    for (const auto& part : parts_) {
      if (part->index == closed_) MUST(ncclCommDestroy(part->ending));
    }
    ++closed_;
    Say("closed " + std::to_string(closed_));
  }

  void End() {
    Together([](Part& part) {
      for (ncclComm_t comm : {part.column, part.row, part.idle, part.sends, part.world}) {
        MUST(ncclCommDestroy(comm));
      }
    });
    if (Polls()) {
      Polled([](Part& part) { return ncclCommFinalize(part.polling); });
      for (const auto& part : parts_) MUST(ncclCommDestroy(part->polling));
    }
    Together([this](Part& part) {
      if (part.index >= closed_) MUST(ncclCommDestroy(part.ending));
    });
  }

  const std::string mode_;
  std::vector<std::unique_ptr<Part>> parts_;
  int used_ = 0;
  int closed_ = 0;
};

}  // namespace
}  // namespace rewire

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  rewire::TakePlace(argv[1]);
  const std::string mode = argv[2];
  if (mode == "threads") {
    std::thread other([&] { rewire::Driver(mode, {1}).Run(); });
    rewire::Driver(mode, {0}).Run();
    other.join();
    return 0;
  }
  rewire::Driver driver(mode, {0, 1});
  if (mode == "lost") {
    driver.RunUntilLost();
  } else {
    driver.Run();
  }
  return 0;
}
