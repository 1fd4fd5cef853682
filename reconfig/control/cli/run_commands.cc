// `rewire run` and `rewire agent`: the commands that run a job's processes. See
// reconfig/control/launcher/launcher.h and reconfig/control/agent/agent.h.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "reconfig/auth/key.h"
#include "reconfig/base/own_file.h"
#include "reconfig/base/settings.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/control/agent/agent.h"
#include "reconfig/control/cli/command_text.h"
#include "reconfig/control/cli/commands.h"
#include "reconfig/control/cli/option_checks.h"
#include "reconfig/control/launcher/guard.h"
#include "reconfig/control/launcher/job_directory.h"
#include "reconfig/control/launcher/launcher.h"
#include "reconfig/control/launcher/master_port.h"
#include "reconfig/control/launcher/member_environment.h"

namespace rewire::control {
namespace {

struct RunOptions {
  uint32_t members = 1;
  uint32_t max = 0;
  bool no_agent = false;
  bool no_preload = false;
  bool torch_auto = false;
  std::string sim_folder;  // "beside": the folder beside the command
  std::string socket;
  std::string directory;
  std::string name;
  std::string store;
  std::string trace_dir;
  std::string metrics;
  std::string grace = "30s";
  std::vector<std::string> program;
};

// Makes `python [-FLAG...] SCRIPT.py ARGUMENT...`, also behind other words, or SCRIPT.py alone, run
// the script under rewire.torch.auto. False: the command has another form.
bool UnderTorchAuto(std::vector<std::string>* program) {
  const auto is_script = [](const std::string& word) { return word.ends_with(".py"); };
  auto at = std::find_if(program->begin(), program->end(), [](const std::string& word) {
    return std::filesystem::path(word).filename().string().starts_with("python") &&
           !word.ends_with(".py");
  });
  const bool interpreter = at != program->end();
  at = interpreter ? at + 1 : program->begin();
  while (interpreter && at != program->end() && at->starts_with("-")) {
    if (*at == "-m" || *at == "-c") return false;
    ++at;
  }
  if (at == program->end() || !is_script(*at)) return false;
  std::vector<std::string> before = {"-m", "rewire.torch.auto"};
  if (!interpreter) before.insert(before.begin(), "python3");
  program->insert(at, before.begin(), before.end());
  return true;
}

// Members may change their folder.
std::string Absolute(const std::string& path) {
  std::error_code failed;
  const std::string absolute = std::filesystem::absolute(path, failed).string();
  return failed ? path : absolute;
}

// An absolute path may be too long for a socket's address: then the path stays relative.
std::string SocketOfMembers(const std::string& path) {
  std::string absolute = Absolute(path);
  return absolute.size() < sizeof sockaddr_un{}.sun_path ? absolute : path;
}

int Launch(const LaunchOptions& options) {
  Launcher launcher(options);
  const absl::StatusOr<int> status = launcher.Run();
  if (status.ok()) return *status;
  Refused(status.status());
  // As in a shell: 126 for a program that cannot be executed, 127 for one that is not found.
  if (absl::IsPermissionDenied(status.status())) return 126;
  return absl::IsNotFound(status.status()) ? 127 : kExitRefused;
}

// Runs a job with its files from the options, the job's folder and the executable's folder.
int RunJob(const RunOptions& o) {
  const auto usage = [](const std::string& text) {
    std::cerr << "rewire run: " << text << "\n";
    return kExitUsage;
  };
  if (o.program.empty()) return usage("no program is given after --: rewire run -n 2 -- ./train");
  if (o.max != 0 && o.max < o.members) {
    return usage("--max " + std::to_string(o.max) + ": must be at least -n " +
                 std::to_string(o.members));
  }
  if (o.no_agent && o.torch_auto) {
    return usage("--torch-auto: the world of a job without an agent (--no-agent) cannot change");
  }
  if (o.no_agent && !(o.metrics.empty() && o.store.empty() && o.trace_dir.empty())) {
    return usage("--no-agent: --metrics, --store and --trace-dir are the agent's");
  }
  if (const std::string& error = Settings::Get().Error(); !error.empty()) return usage(error);
  std::cerr << Settings::Get().Unknown();
  const absl::StatusOr<milliseconds> grace = ParseDuration(o.grace);
  if (!grace.ok()) return usage("--grace: " + std::string(grace.status().message()));

  LaunchOptions launch;
  launch.program = o.program;
  launch.members = o.members;
  launch.max_members = o.max == 0 ? o.members : o.max;
  launch.grace = *grace;
  const absl::StatusOr<std::string> self = OwnExecutable();
  if (!self.ok()) return Refused(self.status());
  const InstallPaths paths = FindInstallPaths(*self);
  if (o.torch_auto) {
    if (!UnderTorchAuto(&launch.program)) {
      return usage("--torch-auto: needs `python SCRIPT.py ARGUMENT...`, also behind other words");
    }
    launch.job.python = paths.python;
  }
  if (!o.no_preload) {
    if (paths.preload.empty()) {
      return Refused("lib/librewire-preload.so was not found next to " + *self +
                     " (--no-preload runs the program without it)");
    }
    launch.job.preload = paths.preload;
  }
  if (!o.sim_folder.empty()) {
    const std::string folder =
        o.sim_folder == "beside" ? paths.sim_directory : Absolute(o.sim_folder);
    if (folder.empty()) {
      return Refused("--sim: the libraries of the simulated GPU were not found next to " + *self);
    }
    launch.job.sim_directory = folder;
    launch.job.sim_nccl = folder + "/libnccl.so.2";
    if (access(launch.job.sim_nccl.c_str(), R_OK) != 0) {
      return usage("--sim: " + launch.job.sim_nccl + ": not a readable file");
    }
  }
  const absl::StatusOr<uint16_t> port = ChooseMasterPort();
  if (!port.ok()) return Refused(port.status());
  launch.job.master_port = *port;
  // One key for all members, also joiners: the launcher runs as long as the job.
  launch.job.net_key = HexOfKey(RandomKey());

  std::optional<JobDirectory> directory;
  if (!o.no_agent) {
    const std::string name = o.name.empty() ? "job-" + std::to_string(getpid()) : o.name;
    absl::StatusOr<JobDirectory> made = JobDirectory::Make(RuntimeDirectory(o.directory), name);
    if (!made.ok()) return Refused(made.status());
    directory.emplace(*std::move(made));
    launch.agent_socket = o.socket.empty() ? directory->socket() : o.socket;
    launch.job.socket = SocketOfMembers(launch.agent_socket);
    launch.agent_command = {*self,
                            "agent",
                            "--socket=" + launch.agent_socket,
                            "--store=" + (o.store.empty() ? directory->store() : o.store),
                            "--job=" + name,
                            "--members=" + std::to_string(launch.members),
                            "--max=" + std::to_string(launch.max_members)};
    if (!o.trace_dir.empty()) launch.agent_command.push_back("--trace-dir=" + o.trace_dir);
    if (!o.metrics.empty()) launch.agent_command.push_back("--metrics=" + o.metrics);
  }
  const absl::StatusOr<int> status =
      RunGuarded(directory ? &*directory : nullptr, [&launch](int guard_fd) {
        launch.guard_fd = guard_fd;
        return Launch(launch);
      });
  return status.ok() ? *status : Refused(status.status());
}

struct AgentCommandOptions {
  AgentOptions agent;
  int ready_fd = -1;
};

// Runs the agent until SIGTERM or SIGINT. Returns the exit status.
int RunAgent(const AgentCommandOptions& options) {
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
    // Otherwise the first trace, after a change, would be the first to fail.
    const std::string probe = absl::StrCat(options.agent.trace_dir, "/rewire-", getpid());
    UniqueFd fd;
    if (const FileStatus made = MakeOwnFile(probe, 0600, &fd); !made.ok()) {
      return Refused("--trace-dir: " + made.text);
    }
    unlink(probe.c_str());
  }
  absl::StatusOr<std::unique_ptr<Agent>> agent = Agent::Start(options.agent);
  if (!agent.ok()) return Refused(agent.status());
  if (options.ready_fd >= 0) {
    if (write(options.ready_fd, "\n", 1) != 1) return Refused("--ready-fd: write failed");
    close(options.ready_fd);
  }
  const absl::Status ended = (*agent)->Run(stop.get());
  return ended.ok() ? kExitOk : Refused(ended);
}

}  // namespace

void AddRunCommand(CLI::App* app, const std::vector<std::string>& program, Action* action) {
  auto o = std::make_shared<RunOptions>();
  o->program = program;
  CLI::App* c =
      app->add_subcommand("run", "Start a job: rewire run -n N [OPTIONS] -- PROGRAM [ARGUMENT...]");
  c->add_option("-n,--members", o->members, "Number of processes to start")
      ->check(CLI::Range(1, 100000));
  c->add_option("--max", o->max, "Largest number of members that a resize may request; default N")
      ->check(CLI::Range(1, 100000));
  c->add_flag(
      "--sim{beside}", o->sim_folder,
      "Use the simulated GPU and NCCL; --sim=DIR: use libnccl.so.2 and libcuda.so.1 in DIR");
  c->add_option("--socket", o->socket, "Path of the agent's socket; default: in the job's folder")
      ->check(NotEmpty());
  c->add_option("--dir", o->directory,
                "Runtime folder, in which the job's folder is created and removed; default\n"
                "$XDG_RUNTIME_DIR/rewire or /tmp/rewire-UID")
      ->check(NotEmpty());
  c->add_option("--job", o->name, "Name of the job; default job-PID")->check(JobName());
  c->add_option("--store", o->store, "File of the world record; default: in the job's folder")
      ->check(NotEmpty());
  c->add_option("--trace-dir", o->trace_dir, "Folder for one trace file per transition")
      ->check(NotEmpty());
  c->add_option("--metrics", o->metrics, "Serve Prometheus text on 127.0.0.1:PORT")
      ->check(MetricsAddress());
  c->add_option("--grace", o->grace,
                "Time from the request to end a process to its SIGKILL, and from a member's death\n"
                "before the first world to the end of the job");
  c->add_flag("--no-agent", o->no_agent, "Run without an agent: the job cannot be changed");
  c->add_flag("--no-preload", o->no_preload, "Run without the preloaded library");
  c->add_flag("--torch-auto", o->torch_auto,
              "PROGRAM is `python SCRIPT.py`, an ordinary PyTorch script: its world can change\n"
              "although the script stays as it is (docs/torch.md)");
  c->footer(
      "The processes get RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR,\n"
      "MASTER_PORT, REWIRE_SOCKET and REWIRE_MEMBER. SIGINT and SIGTERM are passed on; a second\n"
      "one kills. Members with sigterm_is_reclaim=1 take SIGTERM as a reclaim notice; when all\n"
      "have one, the job ends. The exit status is 0 when all members of the last world ended\n"
      "with 0, else that of the first that did not (128 + signal); 1 when the job was stopped\n"
      "and all ended with 0; 126 and 127 when PROGRAM cannot be run.");
  c->callback([o, action] { *action = [o] { return RunJob(*o); }; });
}

void AddAgentCommand(CLI::App* app, Action* action) {
  auto o = std::make_shared<AgentCommandOptions>();
  CLI::App* c =
      app->add_subcommand("agent", "Run the agent of a job (`rewire run` starts an agent)");
  c->add_option("--socket", o->agent.socket, "Path of the Unix socket on which the agent listens")
      ->required()
      ->check(NotEmpty());
  c->add_option("--store", o->agent.store, "File of the world record")
      ->required()
      ->check(NotEmpty());
  c->add_option("--metrics", o->agent.metrics, "Serve Prometheus text on 127.0.0.1:PORT")
      ->check(MetricsAddress());
  c->add_option("--trace-dir", o->agent.trace_dir, "Folder for one trace file per transition")
      ->check(NotEmpty());
  c->add_option("--job", o->agent.job, "Name of the job, shown in status and traces");
  c->add_option("--members", o->agent.members, "Members of the first world: ids 0 to N-1")
      ->check(CLI::Range(1, 100000));
  c->add_option("--max", o->agent.max_members,
                "Largest number of members that a resize may request")
      ->check(CLI::Range(1, 100000));
  c->add_flag("--resume", o->agent.resume,
              "The job has had an agent: fail where its store or its key is missing");
  c->add_option("--ready-fd", o->ready_fd,
                "Descriptor on which the agent writes one byte when it is ready");
  c->callback([o, action, c] {
    if (c->count("--max") == 0) o->agent.max_members = o->agent.members;
    *action = [o] { return RunAgent(*o); };
  });
}

}  // namespace rewire::control
