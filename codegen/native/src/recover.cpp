// Calls LLVM such that its fatal errors and crashes return to the caller.
//
// LLVM's fatal error handler must not return, so it leaves the call by `siglongjmp`, as clang does
// when it runs its compiler in its own process. `llvm::CrashRecoveryContext` is not used: its
// signal handlers do not call the handlers that were installed before (such as Python's
// faulthandler), so crashes of other code would be lost while a kernel is compiled.

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

/// The state of one call that can be aborted.
struct Recovery {
    sigjmp_buf start;
    char *message;
    size_t size;
};

// Thread-local variables in static TLS: signal handlers read them, and must not allocate memory as
// the first access to dynamic TLS does.
#define OF_THREAD __attribute__((tls_model("initial-exec"))) thread_local
/// The call that this thread leaves if LLVM aborts; null outside of calls.
OF_THREAD Recovery *current = nullptr;
/// Whether this thread runs a signal handler that `forward` called.
OF_THREAD bool forwarding = false;

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
    // Prints the message as LLVM does without a handler. LLVM ends the process after this returns.
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

/// Calls the handler that was installed before ours.
void forward(int signal, siginfo_t *info, void *context) {
    size_t at = 0;
    while (at + 1 < COUNT && SIGNALS[at] != signal) {
        at++;
    }
    struct sigaction handler = previous[at];
    bool handles = handler.sa_handler != SIG_DFL && handler.sa_handler != SIG_IGN;
    // The previous handler may itself call ours, if it was installed after an earlier installation
    // of ours. `forwarding` ends that recursion.
    if (handles && !forwarding) {
        forwarding = true;
        if (handler.sa_flags & SA_SIGINFO) {
            handler.sa_sigaction(signal, info, context);
        } else {
            handler.sa_handler(signal);
        }
        forwarding = false;
        return;
    }
    if (handler.sa_handler == SIG_IGN && info->si_code <= 0) {
        return;
    }
    // Restores the default action. A fault happens again when this returns; a signal that was sent
    // by a process is raised again.
    std::signal(signal, SIG_DFL);
    if (info->si_code <= 0) {
        raise(signal);
    }
}

void crashed(int signal, siginfo_t *info, void *context) {
    int error = errno;
    // A signal that another process sent does not come from LLVM.
    if (current && info->si_code != SI_USER) {
        leave("LLVM crashed", name(signal));
    }
    forward(signal, info, context);
    errno = error;
}

/// Installs our signal handlers while at least one thread compiles.
class Handlers {
public:
    Handlers() {
        std::lock_guard<std::mutex> guard(lock);
        if (users++ > 0) {
            return;
        }
        struct sigaction ours;
        std::memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = crashed;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&ours.sa_mask);
        for (size_t i = 0; i < COUNT; i++) {
            struct sigaction installed;
            sigaction(SIGNALS[i], &ours, &installed);
            if (!is_ours(installed)) {
                previous[i] = installed;
            }
        }
    }

    ~Handlers() {
        std::lock_guard<std::mutex> guard(lock);
        if (--users > 0) {
            return;
        }
        for (size_t i = 0; i < COUNT; i++) {
            struct sigaction installed;
            // A handler that was installed after ours may call ours, so it is not replaced.
            if (sigaction(SIGNALS[i], nullptr, &installed) == 0 && is_ours(installed)) {
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

/// Gives this thread a separate stack for signal handlers, which is needed after a stack overflow.
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
    /// A signal frame contains the registers, of which AVX-512 and AMX alone take 11 KB.
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

/// Calls `call(data)`, and returns true if it returned. Otherwise LLVM aborted: the reason is
/// written to `message` (of `size` bytes), and the stack frames of `call` are left without cleanup.
///
/// Calls must not be nested.
extern "C" bool mithril_recover(void (*call)(void *), void *data, char *message, size_t size) {
    static std::once_flag installed;
    std::call_once(installed, [] {
        llvm::install_fatal_error_handler(fatal);
        llvm::install_bad_alloc_error_handler(fatal);
    });
    HandlerStack stack;
    Handlers handlers;
    // LLVM keeps a linked list of stack trace entries in its stack frames. After an abort it is
    // reset, because these frames are gone.
    const void *trace = llvm::SavePrettyStackState();
    Recovery recovery{{}, message, size};
    bool returned = run(recovery, call, data);
    if (!returned) {
        llvm::RestorePrettyStackState(trace);
    }
    return returned;
}
