import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

/** A page on Tomcat that asks another service; the arguments are a directory and its connector's number of threads. */
public final class Main {
    /** The page. */
    static final class Stock extends HttpServlet {
        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            HttpURLConnection connection = (HttpURLConnection) new URL("http://127.0.0.1:9000/").openConnection();
            try (InputStream answer = connection.getInputStream()) {
                response.getOutputStream().write(answer.readAllBytes());
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(args[0]);
        tomcat.setPort(8080);
        if (args.length > 1) {
            tomcat.getConnector().setProperty("minSpareThreads", args[1]);
            tomcat.getConnector().setProperty("maxThreads", args[1]);
        }
        tomcat.getConnector();
        Context context = tomcat.addContext("", new File(args[0]).getAbsolutePath());
        Tomcat.addServlet(context, "stock", new Stock());
        context.addServletMappingDecoded("/stock", "stock");
        tomcat.start();
        tomcat.getServer().await();
    }
}
