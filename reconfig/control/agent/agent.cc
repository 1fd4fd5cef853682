// Runs the agent's turns and the leader's actions; see agent.h. Owned by the agent's thread.
#include "reconfig/control/agent/agent.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/check.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "reconfig/base/short_turns.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/agent/control_messages.h"
#include "reconfig/control/agent/job_json.h"
#include "reconfig/control/store/store.h"
#include "reconfig/elastic/protocol/codec.h"

namespace rewire::control {
namespace {

constexpr char kSecretSuffix[] = ".secret";

elastic::LeaderOptions OptionsOfLeader(const AgentOptions& options, const Key& job) {
  const Settings& s = Settings::Get();
  elastic::LeaderOptions out;
  for (MemberId m = 0; m < options.members; ++m) out.initial_members.push_back(m);
  out.max_members = options.max_members;
  out.job_key = job;
  out.build = milliseconds(s.build_ms());
  out.decision = milliseconds(s.decision_ms());
  out.arm = milliseconds(s.arm_ms());
  out.boundary = milliseconds(s.boundary_ms());
  out.heartbeat = milliseconds(s.heartbeat_ms());
  out.silence = milliseconds(s.silence_ms());
  out.cut_margin = static_cast<uint32_t>(s.cut_margin());
  return out;
}

// A new store would begin the job again at its first world, which its members no longer have.
absl::Status CheckResumes(const std::string& store) {
  for (const std::string& path : {store, store + kSecretSuffix}) {
    if (access(path.c_str(), F_OK) == 0) continue;
    return absl::NotFoundError(
        absl::StrCat("resume the job: ", path, ": ", strerror(errno),
                     " (the file was made when the job began; the world cannot change any more)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agent>> Agent::Start(AgentOptions options) {
  if (options.resume) REWIRE_RETURN_IF_ERROR(CheckResumes(options.store));
  REWIRE_ASSIGN_OR_RETURN(std::unique_ptr<EmbeddedStore> store, EmbeddedStore::Open(options.store));
  REWIRE_ASSIGN_OR_RETURN(const Key job, JobKey(options.store + kSecretSuffix));
  REWIRE_ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> metrics_server,
                          MetricsServer::Listen(options.metrics));
  absl::StatusOr<std::optional<WorldRecord>> record;
  store->Read([&record](auto answer) { record = std::move(answer); });
  REWIRE_RETURN_IF_ERROR(record.status());
  UniqueFd listener;
  if (const SocketStatus s = ListenUnix(options.socket, &listener); !s.ok()) {
    return absl::UnavailableError(s.text);
  }
  std::unique_ptr<Agent> agent(
      new Agent(std::move(options), std::move(store), std::move(metrics_server)));
  Agent* a = agent.get();
  a->leader_ = std::make_unique<elastic::Leader>(OptionsOfLeader(a->options_, job),
                                                 record->value_or(WorldRecord{}));
  Connections::Events* from_connections = a;
  a->connections_ =
      std::make_unique<Connections>(std::move(listener), Connections::Options{}, from_connections);
  LauncherLink::Events* from_launcher = a;
  a->launcher_ = std::make_unique<LauncherLink>(a->connections_.get(), from_launcher);
  const auto submit = [a](const elastic::ChangeRequest& change) {
    // A command never comes from inside an input, so Feed() sets `id` before it returns.
    REWIRE_DCHECK(!a->feeding_);
    absl::StatusOr<uint64_t> id;
    a->Feed([&](elastic::Leader::Out* out) { id = a->leader_->OnRequest(a->now_, change, out); });
    return id;
  };
  a->desk_ = std::make_unique<ControlDesk>(a->options_.job, a->leader_.get(), &a->log_,
                                           a->metrics_.get(), a->connections_.get(), submit,
                                           [a] { return a->StatusAnswer(); });
  return agent;
}

Agent::Agent(AgentOptions options, std::unique_ptr<Store> store,
             std::unique_ptr<MetricsServer> metrics_server)
    : options_(std::move(options)),
      store_(std::move(store)),
      metrics_(std::make_unique<Metrics>()),
      metrics_server_(std::move(metrics_server)),
      started_(Now()),
      now_(started_) {}

Agent::~Agent() = default;

absl::Status Agent::Run(int stop_fd) {
  TakeShortTurns();
  Feed([this](elastic::Leader::Out* out) { leader_->Start(now_, out); });
  for (;;) {
    PollSet turn;
    turn.Add(stop_fd, POLLIN);
    turn.Add(store_->fd(), POLLIN);
    connections_->FlushAll();
    connections_->Watch(Now(), &turn);
    metrics_server_->Watch(Now(), &turn);
    turn.Until(leader_->NextDeadline());
    turn.Until(launcher_->NextDeadline());
    turn.Until(desk_->NextDeadline());
    turn.Until(Now() + seconds(1));  // metrics are at most this old
    turn.Wait();
    if (turn.Ready(stop_fd) != 0) break;
    now_ = Now();
    store_->Progress();
    connections_->Handle(now_, turn);
    metrics_server_->Handle(now_, turn, [this] {
      metrics_->Set(*leader_, *connections_, now_);
      metrics_->SetDroppedClients(metrics_server_->dropped());
      return metrics_->Text();
    });
    launcher_->Tick(now_);
    if (const auto due = leader_->NextDeadline(); due && now_ >= *due) {
      connections_->ReadAll();  // a member whose message came after the wait is not silent
      FindStarved();
      Feed([this](elastic::Leader::Out* out) { leader_->OnTick(now_, out); });
    }
    launcher_->TellWorld(leader_->record().world);
    const elastic::Phase phase = leader_->phase();
    if (phase <= elastic::Phase::kSteady || phase == elastic::Phase::kStopped) log_.OnIdle(now_);
    for (const TransitionEntry& ended : log_.TakeEnded()) {
      metrics_->OnTransition(ended);
      if (!options_.trace_dir.empty()) WriteTrace(ended, options_.trace_dir, options_.job, now_);
    }
    desk_->Settle(now_);
    metrics_->OnTurn(*leader_, now_);
  }
  unlink(options_.socket.c_str());  // no client may connect to an ended agent
  return absl::OkStatus();
}

void Agent::FindStarved() {
  std::set<pid_t> quiet;
  for (const MemberId member : leader_->Quiet()) {
    const auto pid = pids_.find(member);
    if (pid == pids_.end()) continue;
    quiet.insert(pid->second);
    const Duration waited = run_queue_wait_.SinceLast(pid->second, now_);
    if (waited == Duration{}) continue;
    Feed([this, who = member, waited](elastic::Leader::Out* out) {
      leader_->OnStarved(now_, who, waited, out);
    });
  }
  run_queue_wait_.KeepOnly(quiet);
}

// ---- from connections ---------------------------------------------------------------------------

void Agent::OnFrame(Connections::Id id, const std::string& frame) {
  if (IsControl(frame)) {
    OnControlFrame(id, frame);
  } else {
    OnMemberFrame(id, frame);
  }
}

void Agent::OnControlFrame(Connections::Id id, const std::string& frame) {
  if (members_.count(id) != 0) return connections_->CloseForGarbage(id, "a member sent a command");
  const absl::StatusOr<nlohmann::json> command = DecodeControl(frame);
  if (!command.ok()) {
    return connections_->CloseForGarbage(id, std::string(command.status().message()));
  }
  const bool launch = command->contains("command") && (*command)["command"] == "launch";
  if (!launch && !launcher_->IsLauncher(id)) return desk_->OnCommand(now_, id, *command);
  const absl::Status s = launcher_->OnEvent(id, *command);
  if (absl::IsAlreadyExists(s)) {
    REWIRE_WARN("%s", std::string(s.message()).c_str());
    connections_->Send(id, EncodeControl(ControlError(std::string(s.message()))));
    connections_->CloseAfterWriting(now_, id);
  } else if (!s.ok()) {
    connections_->CloseForGarbage(id, std::string(s.message()));
  }
}

void Agent::OnMemberFrame(Connections::Id id, const std::string& frame) {
  const absl::StatusOr<elastic::Message> message = elastic::Decode(frame);
  if (!message.ok()) {
    return connections_->CloseForGarbage(id, std::string(message.status().message()));
  }
  if (const auto* hello = std::get_if<elastic::Hello>(&*message)) return OnHello(id, *hello);
  const auto member = members_.find(id);
  if (std::holds_alternative<elastic::Witness>(*message)) {
    if (member != members_.end()) {
      return connections_->CloseForGarbage(id, "a member sent Witness after Hello");
    }
    witnesses_[id] = connections_->PidOf(id);
    return;
  }
  if (member == members_.end()) {
    return connections_->CloseForGarbage(
        id, absl::StrCat(std::string(elastic::MessageName(*message)), " before Hello"));
  }
  log_.OnReceived(now_, member->second, *message);
  Feed([this, who = member->second, m = *message](elastic::Leader::Out* out) {
    leader_->OnMessage(now_, who, m, out);
  });
}

void Agent::OnHello(Connections::Id id, const elastic::Hello& hello) {
  const auto mine = members_.find(id);
  if (mine != members_.end())
    return connections_->CloseForGarbage(id, "a member sent a second Hello");
  const auto link = links_.find(hello.member);
  if (link != links_.end() && link->second.incarnation != hello.incarnation) {
    // Another running process has this id. The leader must not see the later process.
    if (const auto frame = elastic::Encode(elastic::Refused{absl::StrCat(
            "member ", hello.member, " is connected as another process, ", pids_[hello.member],
            ": each process that uses NCCL must be a member of its own (raise -n of "
            "`rewire run`), or run without REWIRE_SOCKET")});
        frame.ok()) {
      connections_->Send(id, *frame);
    }
    return connections_->CloseAfterWriting(now_, id);
  }
  if (link != links_.end()) {
    members_.erase(link->second.connection);
    connections_->Close(link->second.connection);
  }
  links_[hello.member] = {id, hello.incarnation};
  members_[id] = hello.member;
  pids_[hello.member] = connections_->PidOf(id);
  Feed([this, hello](elastic::Leader::Out* out) { leader_->OnConnect(now_, hello, out); });
}

void Agent::OnClosed(Connections::Id id, const std::string& why) {
  launcher_->OnClosed(id);
  desk_->OnClosed(id);
  if (const auto witness = witnesses_.find(id); witness != witnesses_.end()) {
    const pid_t pid = witness->second;
    witnesses_.erase(witness);
    OnWitnessClosed(id, pid);
  }
  const auto member = members_.find(id);
  if (member == members_.end()) return;
  const MemberId who = member->second;
  REWIRE_DEBUG("member %u: %s", who, why.c_str());
  members_.erase(member);
  links_.erase(who);
  Feed([this, who](elastic::Leader::Out* out) { leader_->OnDisconnect(now_, who, out); });
}

void Agent::OnWitnessClosed(Connections::Id witness, pid_t pid) {
  for (const auto& [member, link] : links_) {
    // A later connection of the process has a witness of its own.
    if (link.connection > witness || connections_->PidOf(link.connection) != pid) continue;
    return connections_->CloseAfterReading(link.connection, "its process is ending");
  }
}

// ---- from the launcher --------------------------------------------------------------------------

void Agent::OnProcess(MemberId member, pid_t pid) { pids_[member] = pid; }

void Agent::OnSpawned(const std::vector<MemberId>& members) {
  Feed([this, members](elastic::Leader::Out* out) { leader_->OnSpawned(now_, members, out); });
}

void Agent::OnSpawnFailed(const std::vector<MemberId>& members, const std::string& why) {
  Feed([this, members, why](elastic::Leader::Out* out) {
    leader_->OnSpawnFailed(now_, members, why, out);
  });
}

void Agent::OnExited(MemberId member, const std::string& how, int status) {
  pids_.erase(member);
  const auto link = links_.find(member);
  if (link != links_.end()) {
    // ReadNow() takes the member's last messages and the end of stream that the kernel has sent.
    connections_->ReadNow(link->second.connection);
  } else if (member >= options_.members) {
    OnSpawnFailed({member}, absl::StrCat("member ", member, " ", how, " before it connected"));
  } else if (status == 0 && leader_->phase() == elastic::Phase::kForming) {
    // The others may need the member in NCCL, or may not: a program may call NCCL on some ranks.
    REWIRE_WARN(
        "member %u %s before it attached: the world is never complete and cannot change; "
        "members whose communicators need this one wait for it as without Rewire",
        member, how.c_str());
    ended_unattached_.insert(member);
  }
  const bool connected = links_.contains(member);
  Feed([=, this](elastic::Leader::Out* out) {
    if (status != 0) return leader_->OnFailedExit(now_, member, how, out);
    if (!connected) leader_->OnEndBeforeWorld(now_, member, out);
  });
}

// ---- the leader ---------------------------------------------------------------------------------

void Agent::Feed(Input input) {
  inputs_.push_back(std::move(input));
  if (feeding_) return;
  feeding_ = true;
  while (!inputs_.empty()) {
    const Input next = std::move(inputs_.front());
    inputs_.pop_front();
    elastic::Leader::Out actions;
    next(&actions);
    for (const elastic::LeaderAction& action : actions) {
      std::visit([this](const auto& a) { Do(a); }, action);
    }
  }
  feeding_ = false;
}

void Agent::Do(const elastic::Spawn& spawn) { launcher_->Start(now_, spawn); }

void Agent::Do(const elastic::Kick& kick) {
  const auto link = links_.find(kick.member);
  if (link == links_.end()) return;
  connections_->CloseAfterWriting(now_, link->second.connection);
  members_.erase(link->second.connection);
  links_.erase(link);
}

void Agent::Do(const elastic::EndProcess& end) { launcher_->End(end.member); }

void Agent::Do(const elastic::EndJob& end) { launcher_->TellStop(end.reason, end.survivors); }

void Agent::Do(const elastic::SendTo& send) {
  log_.OnSent(now_, send.member, send.message);
  const auto link = links_.find(send.member);
  if (link == links_.end()) return;  // the leader is about to see the disconnect
  const absl::StatusOr<std::string> frame = elastic::Encode(send.message);
  if (!frame.ok()) {
    REWIRE_ERROR("%s", std::string(frame.status().message()).c_str());
    return;
  }
  connections_->Send(link->second.connection, *frame);
}

void Agent::Do(const elastic::CompareAndSwap& swap) {
  const Time begin = Now();
  store_->CompareAndSwap(
      swap.expected_revision, swap.record, [this, begin](absl::StatusOr<SwapOutcome> outcome) {
        metrics_->OnStoreWrite(Now() - begin, outcome.ok());
        absl::StatusOr<elastic::StoreAnswer> answer;
        if (outcome.ok()) {
          answer = elastic::StoreAnswer{outcome->swapped, outcome->current.value_or(WorldRecord{})};
        } else {
          answer = outcome.status();  // the leader's note logs a new error once
        }
        Feed([this, answer](elastic::Leader::Out* out) {
          leader_->OnStoreResult(now_, answer, out);
        });
      });
}

void Agent::Do(const elastic::Note& note) {
  const bool bad =
      note.kind == elastic::NoteKind::kWarning || note.kind == elastic::NoteKind::kFailed;
  const bool aborted = note.kind == elastic::NoteKind::kFailed && note.transition != 0;
  SetLogEpoch(note.epoch);
  // No limit: a note is given once, and notes of all kinds come from here.
  if (const LogLevel level = bad ? LogLevel::kWarn : LogLevel::kInfo; LogEnabled(level)) {
    LogLine(level, "%s: %s%s", std::string(elastic::PhaseName(note.phase)).c_str(),
            aborted ? "aborted: " : "", note.text.c_str());
  }
  log_.OnNote(now_, note, leader_->record().world.epoch);
  desk_->OnNote(note);
}

nlohmann::json Agent::StatusAnswer() const {
  nlohmann::json out = WorldStatus(*leader_, log_, pids_, ended_unattached_, now_);
  const Connections::Counters& c = connections_->counters();
  out["ok"] = true;
  out["job"] = options_.job;
  out["max_members"] = options_.max_members;
  out["agent"] = {{"pid", getpid()},
                  {"uptime_ms", ToMilliseconds(now_ - started_)},
                  {"socket", options_.socket},
                  {"store", options_.store},
                  {"metrics_port", metrics_server_->port()},
                  {"launcher", launcher_->connected()}};
  out["counters"] = {{"connections", connections_->size()},
                     {"accepted", c.accepted},
                     {"garbage", c.garbage},
                     {"slow", c.slow},
                     {"half_open", c.half_open},
                     {"wrong_user", c.wrong_user},
                     {"dropped_messages", leader_->dropped_messages()}};
  return out;
}

}  // namespace rewire::control
