import org.apache.http.client.methods.HttpGet;
import org.apache.http.impl.client.CloseableHttpClient;
import org.apache.http.impl.client.HttpClients;
import org.apache.http.impl.conn.PoolingHttpClientConnectionManager;
import org.apache.http.util.EntityUtils;

/** A page that asks the stock of another service. */
final class Main {
    public static void main(String[] args) throws Exception {
        PoolingHttpClientConnectionManager connections = new PoolingHttpClientConnectionManager();
        if (args.length > 0) {
            connections.setDefaultMaxPerRoute(Integer.parseInt(args[0]));
            connections.setMaxTotal(Integer.parseInt(args[0]));
        }
        CloseableHttpClient client = HttpClients.custom().setConnectionManager(connections).build();
        Web.serve("/stock", 32, () -> {
            try (var answer = client.execute(new HttpGet("http://127.0.0.1:9000/"))) {
                return EntityUtils.toString(answer.getEntity());
            }
        });
    }
}
