package passport;

import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.catalina.Context;
import org.apache.catalina.LifecycleException;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.springframework.web.servlet.DispatcherServlet;
import passport.partner.IdentityApi;
import passport.web.LoginController;
import passport.web.Routes;
import passport.web.WarmUp;

/**
 * A login service: a visitor's pass is checked with a partner's identity API, over a connection for each call. Arguments: the
 * port to listen on, and the partner's ip:port. It opens its port when it is warm.
 *
 * <p>What it does needlessly is chosen by properties: passport.routes (variables, literals), passport.seats (exceptions,
 * values), passport.visitors (parsed, raw).
 */
public final class Server {
    /** Requests are worked on by few threads, and wait for the partner on none of these. A CPU is left for packets and for that. */
    private static final int WORKERS = Math.max(1, Runtime.getRuntime().availableProcessors() - 1);
    private static final int MANAGEMENT_PORT = 8081;

    private Server() {
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        String[] partner = args[1].split(":");
        LoginController controller = new LoginController();
        Tomcat tomcat = new Tomcat();
        Path home = Files.createTempDirectory(Path.of(""), "tomcat");
        tomcat.setBaseDir(home.toString());
        tomcat.getService().addConnector(connector("127.0.0.1", MANAGEMENT_PORT));
        Context root = tomcat.addContext("", home.toAbsolutePath().toString());
        Tomcat.addServlet(root, "mvc", new DispatcherServlet(Routes.context(controller))).setAsyncSupported(true);
        root.addServletMappingDecoded("/", "mvc");
        tomcat.start();
        InetSocketAddress here = new InetSocketAddress("127.0.0.1", MANAGEMENT_PORT);
        controller.identifyBy(new IdentityApi(here, WarmUp.IDENTITY));
        WarmUp.run(here);
        controller.identifyBy(new IdentityApi(new InetSocketAddress(partner[0], Integer.parseInt(partner[1])), "/identity"));
        tomcat.getService().addConnector(connector("0.0.0.0", port));
        tomcat.getServer().await();
    }

    private static Connector connector(String address, int port) throws LifecycleException {
        Connector connector = new Connector("HTTP/1.1");
        connector.setPort(port);
        connector.setProperty("address", address);
        connector.setProperty("maxThreads", Integer.toString(WORKERS));
        connector.setProperty("minSpareThreads", Integer.toString(WORKERS));
        connector.setProperty("acceptCount", "1024");
        connector.setProperty("maxKeepAliveRequests", "-1");
        return connector;
    }
}
