package passport.web;

import java.util.concurrent.atomic.LongAdder;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.springframework.web.servlet.handler.HandlerInterceptorAdapter;
import ua_parser.Parser;
import ua_parser.UserAgent;

/** Counts visitors, and with which browser they come, which nobody reads. */
public final class Visitors extends HandlerInterceptorAdapter {
    private final boolean parsed = "parsed".equals(System.getProperty("passport.visitors"));
    private final Parser parser = new Parser();
    private final LongAdder visits = new LongAdder();
    private final LongAdder firefox = new LongAdder();

    @Override
    public boolean preHandle(HttpServletRequest request, HttpServletResponse response, Object handler) {
        visits.increment();
        String header = request.getHeader("User-Agent");
        if (parsed && header != null) {
            UserAgent browser = parser.parseUserAgent(header);
            if ("Firefox".equals(browser.family)) {
                firefox.increment();
            }
        }
        return true;
    }
}
