// Calls of LLVM whose fatal errors and crashes return to the caller.
//
// LLVM's fatal error handler must not return, so it leaves the call by a jump, as clang does where
// it runs its compiler within its own process. `llvm::CrashRecoveryContext` is not used: its signal
// handlers do not call those of others, so a crash of Python's would be lost while a kernel is
// compiled.

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/PrettyStackTrace.h"

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace {

/// One call that may be left.
struct Recovery {
    sigjmp_buf start;
    char *message;
    size_t size;
};

// No memory is allocated for them at their first use, which a signal handler must not do.
#define OF_THREAD __attribute__((tls_model("initial-exec"))) thread_local
/// The call that this thread leaves where LLVM gives up.
OF_THREAD Recovery *current = nullptr;
/// Whether this thread is in another's signal handler, called by ours.
OF_THREAD bool forwards = false;

[[noreturn]] void leave(const char *why, const char *detail) {
    Recovery *recovery = current;
    current = nullptr;
    std::snprintf(recovery->message, recovery->size, "%s: %s", why, detail);
    siglongjmp(recovery->start, 1);
}

void fatal(void *, const char *reason, bool) {
    if (current) {
        leave("LLVM ended with a fatal error", reason);
    }
    // What LLVM does without a handler; it ends the process when this returns.
    std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
}

const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT};
const size_t COUNT = sizeof SIGNALS / sizeof *SIGNALS;
struct sigaction previous[COUNT];

const char *name(int signal) {
    switch (signal) {
    case SIGSEGV: return "SIGSEGV, a bad address or a stack that is too small";
    case SIGBUS: return "SIGBUS";
    case SIGILL: return "SIGILL";
    case SIGFPE: return "SIGFPE";
    case SIGTRAP: return "SIGTRAP";
    default: return "SIGABRT";
    }
}

/// Has the handler that was there before ours do its work.
void forward(int signal, siginfo_t *info, void *context) {
    size_t at = 0;
    while (at + 1 < COUNT && SIGNALS[at] != signal) {
        at++;
    }
    struct sigaction own = previous[at];
    bool handles = own.sa_handler != SIG_DFL && own.sa_handler != SIG_IGN;
    // One that was installed over ours, and that ours was installed over again, calls us.
    if (handles && !forwards) {
        forwards = true;
        if (own.sa_flags & SA_SIGINFO) {
            own.sa_sigaction(signal, info, context);
        } else {
            own.sa_handler(signal);
        }
        forwards = false;
        return;
    }
    if (own.sa_handler == SIG_IGN && info->si_code <= 0) {
        return;
    }
    // A fault comes again when this returns; what a process sent is sent again.
    std::signal(signal, SIG_DFL);
    if (info->si_code <= 0) {
        raise(signal);
    }
}

void crashed(int signal, siginfo_t *info, void *context) {
    int error = errno;
    // What another process sends is not of the compiler's doing.
    if (current && info->si_code != SI_USER) {
        leave("LLVM crashed", name(signal));
    }
    forward(signal, info, context);
    errno = error;
}

/// Our signal handlers, there while some thread compiles.
class Handlers {
public:
    Handlers() {
        std::lock_guard<std::mutex> guard(lock);
        if (users++ > 0) {
            return;
        }
        struct sigaction own;
        std::memset(&own, 0, sizeof own);
        own.sa_sigaction = crashed;
        own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&own.sa_mask);
        for (size_t i = 0; i < COUNT; i++) {
            struct sigaction there;
            sigaction(SIGNALS[i], &own, &there);
            if (!is_ours(there)) {
                previous[i] = there;
            }
        }
    }

    ~Handlers() {
        std::lock_guard<std::mutex> guard(lock);
        if (--users > 0) {
            return;
        }
        for (size_t i = 0; i < COUNT; i++) {
            struct sigaction there;
            // Who has installed one since may call ours: it stays.
            if (sigaction(SIGNALS[i], nullptr, &there) == 0 && is_ours(there)) {
                sigaction(SIGNALS[i], &previous[i], nullptr);
            }
        }
    }

private:
    static std::mutex lock;
    static int users;

    static bool is_ours(const struct sigaction &action) {
        return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == crashed;
    }
};

std::mutex Handlers::lock;
int Handlers::users = 0;

/// A stack of this thread for signal handlers, which have none where the thread's own is used up.
class HandlerStack {
public:
    HandlerStack() {
        stack_t own = {};
        own.ss_sp = bytes;
        own.ss_size = sizeof bytes;
        changed = sigaltstack(&own, &before) == 0;
    }

    ~HandlerStack() {
        if (changed) {
            sigaltstack(&before, nullptr);
        }
    }

private:
    /// The registers of AVX-512 and AMX alone are 11 KB.
    alignas(64) char bytes[1 << 16];
    stack_t before;
    bool changed;
};

bool run(Recovery &recovery, void (*call)(void *), void *data) {
    if (sigsetjmp(recovery.start, 1)) {
        return false;
    }
    current = &recovery;
    call(data);
    current = nullptr;
    return true;
}

} // namespace

/// Calls `call(data)`. Returns whether it returned; otherwise LLVM gave up, `message` (of `size`
/// bytes) says why, and what `call` was doing is left as it was.
///
/// Calls within calls are an error of the caller's.
extern "C" bool mithril_recover(void (*call)(void *), void *data, char *message, size_t size) {
    static std::once_flag installed;
    std::call_once(installed, [] {
        llvm::install_fatal_error_handler(fatal);
        llvm::install_bad_alloc_error_handler(fatal);
    });
    HandlerStack stack;
    Handlers handlers;
    // LLVM keeps a list of what it does in the frames that are left.
    const void *trace = llvm::SavePrettyStackState();
    Recovery recovery{{}, message, size};
    bool returned = run(recovery, call, data);
    if (!returned) {
        llvm::RestorePrettyStackState(trace);
    }
    return returned;
}
