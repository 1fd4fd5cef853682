// `rewire agent`: the agent's process, started by `rewire run` or by hand.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "reconfig/base/settings.h"
#include "reconfig/control/agent/agent.h"
#include "reconfig/control/cli/commands.h"

namespace rewire::control {
namespace {

struct Options {
  AgentOptions agent;
  int ready_fd = -1;
};

int RunAgent(const Options& options) {
  if (const std::string& error = Settings::Get().Error(); !error.empty()) {
    std::cerr << error;
    return kExitUsage;
  }
  if (options.agent.max_members < options.agent.members) {
    std::cerr << "rewire: --max " << options.agent.max_members << ": must be at least --members "
              << options.agent.members << "\n";
    return kExitUsage;
  }
  prctl(PR_SET_NAME, "rewire-agent");
  // Block these signals before any thread is made, so that only the descriptor receives them.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const UniqueFd stop(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!stop.valid()) return Refused(std::string("signalfd: ") + strerror(errno));
  if (!options.agent.trace_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.agent.trace_dir, error);
    if (error) return Refused(options.agent.trace_dir + ": " + error.message());
  }
  absl::StatusOr<std::unique_ptr<Agent>> agent = Agent::Start(options.agent);
  if (!agent.ok()) return Refused(std::string(agent.status().message()));
  if (options.ready_fd >= 0) {
    if (write(options.ready_fd, "\n", 1) != 1) return Refused("--ready-fd: write failed");
    close(options.ready_fd);
  }
  const absl::Status ended = (*agent)->Run(stop.get());
  return ended.ok() ? kExitOk : Refused(std::string(ended.message()));
}

}  // namespace

void AddAgentCommand(CLI::App* app, Action* action) {
  auto o = std::make_shared<Options>();
  CLI::App* c =
      app->add_subcommand("agent", "Run the agent of a job (`rewire run` starts an agent)");
  c->add_option("--socket", o->agent.socket, "Path of the Unix socket on which the agent listens")
      ->required();
  c->add_option("--store", o->agent.store, "File of the world record")->required();
  c->add_option("--metrics", o->agent.metrics, "Serve Prometheus text on 127.0.0.1:PORT");
  c->add_option("--trace-dir", o->agent.trace_dir, "Folder for one trace file per transition");
  c->add_option("--job", o->agent.job, "Name of the job, shown in status and traces");
  c->add_option("--members", o->agent.members, "Members of the first world: ids 0 to N-1")
      ->check(CLI::Range(1, 100000));
  c->add_option("--max", o->agent.max_members,
                "Largest number of members that a resize may request")
      ->check(CLI::Range(1, 100000));
  c->add_option("--ready-fd", o->ready_fd,
                "Descriptor on which the agent writes one byte when it is ready");
  c->callback([o, action, c] {
    if (c->count("--max") == 0) o->agent.max_members = o->agent.members;
    *action = [o] { return RunAgent(*o); };
  });
}

}  // namespace rewire::control
