package passport.web;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicLong;
import javax.servlet.AsyncContext;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import passport.login.Tickets;
import passport.partner.IdentityApi;

/** Logs a visitor in, and says what is on offer. */
public final class LoginController {
    private final Tickets tickets = new Tickets();
    private final AtomicLong visitors = new AtomicLong();
    private volatile IdentityApi api;

    /** From now on visitors are identified by this API. */
    public void identifyBy(IdentityApi api) {
        this.api = api;
    }

    /** The partner's answer is waited for on no thread. */
    public void login(HttpServletRequest request, HttpServletResponse response) {
        long visitor = visitors.incrementAndGet();
        long offer = tickets.offer(visitor);
        AsyncContext later = request.startAsync();
        api.identify(visitor).whenComplete((identity, failure) -> {
            try {
                if (failure == null) {
                    write(response, "visitor " + visitor + " offer " + offer + " identity " + identity);
                } else {
                    response.sendError(HttpServletResponse.SC_BAD_GATEWAY, failure.toString());
                }
            } catch (IOException gone) {
                // The visitor is not there any more.
            } finally {
                later.complete();
            }
        });
    }

    /** What is on offer, to a visitor who does not log in. */
    public void offer(HttpServletResponse response) throws IOException {
        write(response, "offer " + tickets.offer(visitors.incrementAndGet()));
    }

    private static void write(HttpServletResponse response, String text) throws IOException {
        response.setContentType("text/plain");
        response.setContentLength(text.length());
        response.getWriter().write(text);
    }
}
